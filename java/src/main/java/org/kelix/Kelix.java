package org.kelix;

import java.lang.ref.Cleaner;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A client of a server, for all threads of a process.
 *
 * <pre>{@code
 * try (Kelix kelix = Kelix.connect(); Session session = kelix.session()) {
 *     Table people = session.create("people", TableKind.HASH);
 *     session.put(people, "ada".getBytes(), "Lovelace".getBytes());
 *     byte[] value = session.get(people, "ada".getBytes());
 * }
 * }</pre>
 */
public final class Kelix implements AutoCloseable {
    private final Pool pool;
    private final Cleaner.Cleanable cleanable;
    private final ReentrantLock lock = new ReentrantLock();
    private Async async;

    private Kelix(Options options) {
        Library.version();
        Block block = new Block(Block.ROOM);
        String[] texts = {
            options.address,
            options.namespace,
            options.token,
            options.certificates,
            options.certificate,
            options.key
        };
        byte[][] bytes = new byte[texts.length][];
        int all = 0;
        for (int at = 0; at < texts.length; at++) {
            bytes[at] = Block.name(texts[at], "option");
            all += bytes[at].length;
        }
        block.begin(all, texts.length);
        for (int at = 0; at < texts.length; at++) {
            block.bytes(1 + 2 * at, bytes[at]);
        }
        block.set(13, options.timeout).set(14, options.retryFor).must(Op.CONNECT);
        pool = new Pool(options, block.out(0));
        cleanable = Handle.clean(this, pool);
    }

    /**
     * Connects to the server of the run directory that servers use when none is named.
     *
     * @return a client
     * @throws KelixException no server answers, or not this client
     */
    public static Kelix connect() {
        return connect(new Options());
    }

    /**
     * Connects to a server.
     *
     * @param address its run directory, or HOST:PORT
     * @return a client
     * @throws KelixException no server answers, or not this client
     */
    public static Kelix connect(String address) {
        return connect(new Options().address(address));
    }

    /**
     * Connects to a server.
     *
     * @param options how
     * @return a client
     * @throws KelixException no server answers, or not this client
     */
    public static Kelix connect(Options options) {
        return new Kelix(Block.need(options, "options").clone());
    }

    /**
     * The version of the native library.
     *
     * @return as "0.1.0"
     */
    public static String version() {
        return Library.version();
    }

    /**
     * Takes a session out of the pool, or opens one. It is given back by {@link Session#close()}.
     *
     * @return a session, for one thread at a time
     */
    public Session session() {
        return new Session(this, pool.session());
    }

    /**
     * Operations that end later, by a session and a thread of their own.
     *
     * @return the same one with each call
     */
    public Async async() {
        lock.lock();
        try {
            if (async == null || pool.isClosed()) {
                async = new Async(this);
            }
            return async;
        } finally {
            lock.unlock();
        }
    }

    /**
     * A table as a map, for all threads. The table is made, of the kind {@link TableKind#HASH}, if
     * there is none. A table of the kind {@link TableKind#INLINE} has no versions, and so cannot be
     * a map.
     *
     * @param name the table's name
     * @param keys what keys are as bytes
     * @param values what values are as bytes
     * @param <K> the type of keys
     * @param <V> the type of values
     * @return a map
     */
    public <K, V> KelixMap<K, V> asMap(String name, Codec<K> keys, Codec<V> values) {
        try (Session session = session()) {
            Table table;
            try {
                table = session.table(name);
            } catch (NoSuchTableException error) {
                table = session.create(name, TableKind.HASH);
            }
            if (table.kind() == TableKind.INLINE) {
                throw KelixException.invalid(
                        "a table of the kind INLINE has no versions, which a map needs");
            }
            return new KelixMap<>(
                    this,
                    table,
                    Block.need(keys, "codec of keys"),
                    Block.need(values, "codec of values"));
        }
    }

    /**
     * Ends all sessions, each when no call is inside. What is used later throws {@link
     * ErrorKind#INVALID_ARGUMENT}.
     */
    @Override
    public void close() {
        lock.lock();
        try {
            if (async != null) {
                async.close();
            }
        } finally {
            lock.unlock();
        }
        cleanable.clean();
    }
}
