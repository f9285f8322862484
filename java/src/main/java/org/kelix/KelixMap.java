package org.kelix;

import java.util.AbstractMap;
import java.util.AbstractSet;
import java.util.Arrays;
import java.util.Iterator;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentMap;

/**
 * A table as a map, for all threads; {@link Kelix#asMap} makes it. Each call takes a session out of
 * the pool.
 *
 * <p>What {@link ConcurrentMap} says holds among all processes that use the table: {@link
 * #putIfAbsent}, {@link #remove(Object, Object)}, {@link #replace}, {@link #compute} and the others
 * are done by compare-and-set. Null is neither key nor value. Whether two values are equal is told
 * by their {@code equals}, or by their bytes.
 *
 * <p>Iteration goes page by page, in the order of keys if the table has one. It is not one moment
 * of the table: what is there all the time comes once, what is put or deleted meanwhile at most
 * once. An iterator of more than 1,024 entries has a session of the pool until it has read the last
 * ones. {@link #size} counts all keys, and {@link #clear} deletes key by key. A write leaves no
 * attributes, flags and end of an item.
 *
 * @param <K> the type of keys
 * @param <V> the type of values
 */
public final class KelixMap<K, V> extends AbstractMap<K, V> implements ConcurrentMap<K, V> {
    private static final int PAGE = 1024;

    private final Kelix kelix;
    private final Table table;
    private final Codec<K> keys;
    private final Codec<V> values;

    KelixMap(Kelix kelix, Table table, Codec<K> keys, Codec<V> values) {
        this.kelix = kelix;
        this.table = table;
        this.keys = keys;
        this.values = values;
    }

    /**
     * The table.
     *
     * @return the table
     */
    public Table table() {
        return table;
    }

    @SuppressWarnings("unchecked")
    private byte[] key(Object key) {
        return keys.encode((K) Objects.requireNonNull(key));
    }

    private byte[] value(V value) {
        return values.encode(Objects.requireNonNull(value));
    }

    /** Whether bytes are a value, which may be of another type. */
    @SuppressWarnings("unchecked")
    private boolean isValue(byte[] bytes, Object value) {
        if (values.decode(bytes).equals(value)) {
            return true;
        }
        try {
            return Arrays.equals(bytes, values.encode((V) value));
        } catch (ClassCastException error) {
            return false;
        }
    }

    @Override
    public V get(Object key) {
        byte[] value = found(key(key));
        return value == null ? null : values.decode(value);
    }

    /** No session is held while a codec is at work, which may use the map itself. */
    private byte[] found(byte[] key) {
        try (Session session = kelix.session()) {
            return session.get(table, key);
        }
    }

    @Override
    public boolean containsKey(Object key) {
        byte[] encoded = key(key);
        try (Session session = kelix.session()) {
            return session.getRange(table, encoded, 0, 0) != null;
        }
    }

    @Override
    public boolean containsValue(Object value) {
        Objects.requireNonNull(value);
        for (Entry<K, V> entry : entrySet()) {
            if (isValue(values.encode(entry.getValue()), value)) {
                return true;
            }
        }
        return false;
    }

    /**
     * Puts a value, and does not ask for the one that was there, which saves a read.
     *
     * @param key the key
     * @param value the value
     */
    public void set(K key, V value) {
        byte[] encoded = key(key);
        byte[] bytes = value(value);
        try (Session session = kelix.session()) {
            session.put(table, encoded, bytes);
        }
    }

    @Override
    public V put(K key, V value) {
        byte[] encoded = key(key);
        byte[] bytes = value(value);
        try (Session session = kelix.session()) {
            while (true) {
                Item item = session.getItem(table, encoded);
                long version = item == null ? Session.ABSENT : item.version();
                if (session.compareAndSet(table, encoded, version, bytes).done()) {
                    return item == null ? null : values.decode(item.value());
                }
            }
        }
    }

    @Override
    public V putIfAbsent(K key, V value) {
        byte[] encoded = key(key);
        byte[] bytes = value(value);
        try (Session session = kelix.session()) {
            while (true) {
                byte[] found = session.get(table, encoded);
                if (found != null) {
                    return values.decode(found);
                }
                if (session.compareAndSet(table, encoded, Session.ABSENT, bytes).done()) {
                    return null;
                }
            }
        }
    }

    @Override
    public V remove(Object key) {
        byte[] encoded = key(key);
        try (Session session = kelix.session()) {
            while (true) {
                Item item = session.getItem(table, encoded);
                if (item == null) {
                    return null;
                }
                if (session.compareAndDelete(table, encoded, item.version()).done()) {
                    return values.decode(item.value());
                }
            }
        }
    }

    @Override
    public boolean remove(Object key, Object value) {
        byte[] encoded = key(key);
        Objects.requireNonNull(value);
        try (Session session = kelix.session()) {
            while (true) {
                Item item = session.getItem(table, encoded);
                if (item == null || !isValue(item.value(), value)) {
                    return false;
                }
                if (session.compareAndDelete(table, encoded, item.version()).done()) {
                    return true;
                }
            }
        }
    }

    @Override
    public V replace(K key, V value) {
        byte[] encoded = key(key);
        byte[] bytes = value(value);
        try (Session session = kelix.session()) {
            while (true) {
                Item item = session.getItem(table, encoded);
                if (item == null) {
                    return null;
                }
                if (session.compareAndSet(table, encoded, item.version(), bytes).done()) {
                    return values.decode(item.value());
                }
            }
        }
    }

    @Override
    public boolean replace(K key, V expected, V value) {
        byte[] encoded = key(key);
        byte[] bytes = value(value);
        Objects.requireNonNull(expected);
        try (Session session = kelix.session()) {
            while (true) {
                Item item = session.getItem(table, encoded);
                if (item == null || !isValue(item.value(), expected)) {
                    return false;
                }
                if (session.compareAndSet(table, encoded, item.version(), bytes).done()) {
                    return true;
                }
            }
        }
    }

    @Override
    public int size() {
        try (Session session = kelix.session()) {
            return (int) Math.min(session.count(table, Scan.all()), Integer.MAX_VALUE);
        }
    }

    @Override
    public boolean isEmpty() {
        try (Session session = kelix.session()) {
            return session.scan(table, Scan.all().limit(1)).isEmpty();
        }
    }

    @Override
    public void clear() {
        try (Session session = kelix.session();
                Cursor cursor = session.cursor(table, Scan.all())) {
            for (Rows page = cursor.next(PAGE); !page.isEmpty(); page = cursor.next(PAGE)) {
                for (int row = 0; row < page.size(); row++) {
                    session.delete(table, page.key(row));
                }
            }
        }
    }

    /** A set of the map's keys or entries, which has no content of its own. */
    private abstract class Shown<E> extends AbstractSet<E> {
        @Override
        public int size() {
            return KelixMap.this.size();
        }

        @Override
        public boolean isEmpty() {
            return KelixMap.this.isEmpty();
        }

        @Override
        public void clear() {
            KelixMap.this.clear();
        }
    }

    @Override
    public Set<K> keySet() {
        return new Shown<>() {
            @Override
            public Iterator<K> iterator() {
                Iterator<Entry<K, V>> entries = entrySet().iterator();
                return new Iterator<>() {
                    @Override
                    public boolean hasNext() {
                        return entries.hasNext();
                    }

                    @Override
                    public K next() {
                        return entries.next().getKey();
                    }

                    @Override
                    public void remove() {
                        entries.remove();
                    }
                };
            }

            @Override
            public boolean contains(Object key) {
                return containsKey(key);
            }

            @Override
            public boolean remove(Object key) {
                return KelixMap.this.remove(key) != null;
            }
        };
    }

    @Override
    public Set<Entry<K, V>> entrySet() {
        return new Shown<>() {
            @Override
            public Iterator<Entry<K, V>> iterator() {
                return new Entries();
            }

            @Override
            public boolean contains(Object object) {
                if (!(object instanceof Map.Entry<?, ?> entry)) {
                    return false;
                }
                byte[] encoded = key(entry.getKey());
                Objects.requireNonNull(entry.getValue());
                byte[] found = found(encoded);
                return found != null && isValue(found, entry.getValue());
            }

            @Override
            public boolean remove(Object object) {
                return object instanceof Map.Entry<?, ?> entry
                        && KelixMap.this.remove(entry.getKey(), entry.getValue());
            }
        };
    }

    /**
     * All entries, page by page. It has a session until it has read the last page, or cannot be
     * reached any more.
     */
    private final class Entries implements Iterator<Entry<K, V>> {
        private final Session session = kelix.session();
        private Cursor cursor;
        private Rows page;
        private int row;
        private byte[] last;

        Entries() {
            try {
                cursor = session.cursor(table, Scan.all());
                turn();
            } catch (Throwable error) {
                session.close();
                throw error;
            }
        }

        private void turn() {
            page = cursor.next(PAGE);
            row = 0;
            if (cursor.isOver()) {
                session.close();
            }
        }

        @Override
        public boolean hasNext() {
            return row < page.size();
        }

        @Override
        public Entry<K, V> next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            last = page.key(row);
            Entry<K, V> entry =
                    new WrittenEntry(keys.decode(last.clone()), values.decode(page.value(row)));
            row++;
            if (row == page.size() && !cursor.isOver()) {
                turn();
            }
            return entry;
        }

        @Override
        public void remove() {
            if (last == null) {
                throw new IllegalStateException("there is no entry to be removed");
            }
            try (Session own = kelix.session()) {
                own.delete(table, last);
            }
            last = null;
        }
    }

    /** An entry whose value, when it is set, is put into the table. */
    private final class WrittenEntry extends SimpleEntry<K, V> {
        private static final long serialVersionUID = 1;

        WrittenEntry(K key, V value) {
            super(key, value);
        }

        @Override
        public V setValue(V value) {
            set(getKey(), value);
            return super.setValue(value);
        }
    }
}
