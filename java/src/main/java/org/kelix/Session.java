// Longer than other files, since each operation stands here with what it takes, returns and throws;
// what operations have in common is in Block and Core.
package org.kelix;

import java.lang.ref.Cleaner;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/**
 * A way to the store, for one thread at a time; it may go from thread to thread. A call that comes
 * while another thread's is inside throws {@link ErrorKind#BUSY} and does nothing. To close it
 * gives it back to the pool; until then the scans, walks, views and builds that it opened can be
 * used, and no longer.
 *
 * <p>A session with a server of this host reads the server's memory itself. One whose server has
 * gone goes over to the server that is there by then.
 *
 * <p>All methods throw {@link KelixException}: {@link ErrorKind#INVALID_ARGUMENT} where an argument
 * is null, breaks a limit, or is of another server, {@link UnavailableException} where a message to
 * the server is needed and none answers, and what else they say.
 */
public final class Session implements AutoCloseable {
    /** The version of a key that is absent. */
    public static final long ABSENT = 0;

    private static final int VALUE_ENTRY_BYTES = 40;
    private static final long NO_VALUE = -1;

    final SessionHandle handle;
    private final Core core;

    /** As long as a session is in use, its client stays. */
    private final Kelix kelix;

    private final Cleaner.Cleanable cleanable;

    Session(Kelix kelix, SessionHandle handle) {
        this.kelix = kelix;
        this.handle = handle;
        core = handle.core;
        cleanable = handle.with(this);
    }

    Core enter() {
        handle.take();
        return core;
    }

    void leave() {
        handle.put(core.address);
    }

    /**
     * Gives the session back to the pool, when no call is inside. To close it again does nothing.
     */
    @Override
    public void close() {
        cleanable.clean();
    }

    /**
     * The client that it is of.
     *
     * @return the client
     */
    public Kelix kelix() {
        return kelix;
    }

    // ---- tables ----

    /**
     * Opens a table.
     *
     * @param name its name
     * @return the table
     * @throws NoSuchTableException there is none of this name
     */
    public Table table(String name) {
        byte[] bytes = Block.name(name, "name of a table");
        Block block = enter().block;
        try {
            block.begin(bytes.length, 1).bytes(1, bytes).must(Op.OPEN_TABLE);
            return new Table(block, name);
        } finally {
            leave();
        }
    }

    /**
     * Opens a table, making it if there is none.
     *
     * @param name its name: 1 to 255 bytes of UTF-8, without a slash
     * @param kind its kind
     * @return the table
     * @throws KelixException {@link ErrorKind#INVALID_ARGUMENT}: there is one of another kind, or
     *     the name cannot be
     */
    public Table create(String name, TableKind kind) {
        byte[] bytes = Block.name(name, "name of a table");
        Block.need(kind, "kind of a table");
        Block block = enter().block;
        try {
            block.begin(bytes.length, 1)
                    .bytes(1, bytes)
                    .set(3, kind.ordinal())
                    .must(Op.CREATE_TABLE);
            return new Table(block, name);
        } finally {
            leave();
        }
    }

    /**
     * Drops a table and all that is in it.
     *
     * @param name its name
     * @return whether there was one
     */
    public boolean drop(String name) {
        return named(name, "name of a table", Op.DROP_TABLE);
    }

    /**
     * Drops a loaded dataset with all its tables.
     *
     * @param name its name
     * @return whether there was one
     */
    public boolean dropDataset(String name) {
        return named(name, "name of a dataset", Op.DROP_DATASET);
    }

    private boolean named(String name, String what, Op op) {
        byte[] bytes = Block.name(name, what);
        Block block = enter().block;
        try {
            return block.begin(bytes.length, 1).bytes(1, bytes).must(op) == 0;
        } finally {
            leave();
        }
    }

    /**
     * The names of all tables.
     *
     * @return a new list, in no order
     */
    public List<String> tables() {
        Block block = enter().block;
        try {
            block.must(Op.LIST_TABLES);
            int count = (int) block.out(1);
            ByteBuffer names = count == 0 ? null : Block.memory(block.out(0), 16L * count);
            List<String> tables = new ArrayList<>(count);
            for (int at = 0; at < 16 * count; at += 16) {
                byte[] name = Block.copy(names.getLong(at), names.getLong(at + 8));
                tables.add(new String(name, java.nio.charset.StandardCharsets.UTF_8));
            }
            return tables;
        } finally {
            leave();
        }
    }

    /**
     * The table with a number, as items and links tell it.
     *
     * @param id the number
     * @return the table
     * @throws NoSuchTableException there is no such table (any more)
     */
    public Table tableById(int id) {
        if (id < 0 || id > 0xffff) {
            throw KelixException.invalid("no table has the number " + id);
        }
        Block block = enter().block;
        try {
            if (block.set(1, id).must(Op.TABLE_NAME) != 0) {
                throw KelixException.of(
                        ErrorKind.NO_SUCH_TABLE,
                        "no table has the number " + id,
                        false,
                        Effect.NO,
                        "tableById",
                        0);
            }
            String name = block.toldText(0);
            block.must(Op.TABLE_BY_ID);
            return new Table(block, name);
        } finally {
            leave();
        }
    }

    // ---- values ----

    /**
     * Gets the value of a key; of an item with attributes, that of the attribute without a name.
     *
     * @param table the table
     * @param key the key
     * @return a new array, or null: there is no such key
     */
    public byte[] get(Table table, byte[] key) {
        Block.need(table, "table");
        Block.need(key, "key");
        handle.take();
        try {
            return core.get(table, key);
        } finally {
            leave();
        }
    }

    /**
     * Gets a value into an array.
     *
     * @param table the table
     * @param key the key
     * @param into where the value goes, from the first byte on
     * @return how many bytes it has, or -1: there is no such key
     * @throws KelixException {@link ErrorKind#BUFFER_TOO_SMALL}: the value is longer than the array
     */
    public int get(Table table, byte[] key, byte[] into) {
        return get(table, key, into, 0, Block.need(into, "array").length);
    }

    /**
     * Gets a value into a part of an array.
     *
     * @param table the table
     * @param key the key
     * @param into where the value goes
     * @param offset its first byte
     * @param length how many bytes there are for it
     * @return how many bytes it has, or -1: there is no such key
     * @throws KelixException {@link ErrorKind#BUFFER_TOO_SMALL}: the value is longer
     */
    public int get(Table table, byte[] key, byte[] into, int offset, int length) {
        Block.need(table, "table");
        Block.need(key, "key");
        Block.need(into, "array");
        if ((offset | length) < 0 || length > into.length - offset) {
            throw KelixException.invalid(
                    "the array has "
                            + into.length
                            + " bytes, and not "
                            + length
                            + " from "
                            + offset
                            + " on");
        }
        handle.take();
        try {
            if (Bridge.READS_ARRAYS) {
                long got =
                        Bridge.tryGet(
                                core.address,
                                table.word0,
                                table.word1,
                                table.word2,
                                key,
                                into,
                                offset,
                                length);
                if (got >= 0) {
                    return (int) got;
                }
                if (got == Core.GOT_ABSENT) {
                    return -1;
                }
            }
            int got = core.get(table, key, length);
            if (got > 0) {
                core.block.data().get(core.valueAt, into, offset, got);
            }
            return got;
        } finally {
            leave();
        }
    }

    /**
     * Gets a value into a buffer, at its position, which moves behind the value.
     *
     * @param table the table
     * @param key the key
     * @param into where the value goes
     * @return how many bytes it has, or -1: there is no such key
     * @throws KelixException {@link ErrorKind#BUFFER_TOO_SMALL}: the value is longer than what
     *     remains of the buffer
     */
    public int get(Table table, byte[] key, ByteBuffer into) {
        return get(table, ByteBuffer.wrap(Block.need(key, "key")), into);
    }

    /**
     * Gets a value into a buffer, at its position, which moves behind the value. Direct buffers are
     * the fastest on Java 17.
     *
     * @param table the table
     * @param key the key: what remains of this buffer, whose position stays
     * @param into where the value goes
     * @return how many bytes it has, or -1: there is no such key
     * @throws KelixException {@link ErrorKind#BUFFER_TOO_SMALL}: the value is longer than what
     *     remains of the buffer
     */
    public int get(Table table, ByteBuffer key, ByteBuffer into) {
        Block.need(table, "table");
        Block.need(key, "key");
        Block.need(into, "buffer");
        if (into.isReadOnly()) {
            throw KelixException.invalid("the buffer can only be read");
        }
        handle.take();
        try {
            long got;
            if (Bridge.READS_ARRAYS) {
                got = Bridge.tryGet(core.address, table.word0, table.word1, table.word2, key, into);
            } else {
                got =
                        key.isDirect() && into.isDirect()
                                ? core.getDirect(table, key, into)
                                : Long.MIN_VALUE;
            }
            if (got == Core.GOT_ABSENT) {
                return -1;
            }
            if (got < 0) {
                byte[] copied = new byte[key.remaining()];
                key.get(key.position(), copied);
                got = core.get(table, copied, into.remaining());
                if (got > 0) {
                    ByteBuffer data = core.block.data();
                    into.put(data.slice(core.valueAt, (int) got));
                    return (int) got;
                }
            }
            if (got > 0) {
                into.position(into.position() + (int) got);
            }
            return (int) got;
        } finally {
            leave();
        }
    }

    /**
     * Gets a value if loads from memory are all it takes: the call never waits, sends or asks the
     * system. From time to time it cannot tell for any key, never for keys that a hash table does
     * not have and for values of more than a few KiB, and never where the server's memory is not
     * within reach. Then {@link #get} does what is due.
     *
     * @param table the table
     * @param key the key
     * @param into where the value goes, at its position, which moves behind the value
     * @return how many bytes it has, -1: there is no such key, or -2: nothing can be told without
     *     waiting
     * @throws KelixException {@link ErrorKind#BUFFER_TOO_SMALL}: the value is longer than what
     *     remains of the buffer
     */
    public int tryGet(Table table, byte[] key, ByteBuffer into) {
        Block.need(table, "table");
        Block.need(key, "key");
        if (Block.need(into, "buffer").isReadOnly()) {
            throw KelixException.invalid("the buffer can only be read");
        }
        Block block = enter().block;
        try {
            // Values of more than a few KiB are none that a try tells.
            int room = Math.min(into.remaining(), Block.ROOM);
            block.begin((long) key.length + room, 2).table(1, table).bytes(4, key);
            int at = block.take(room);
            int code = block.set(6, block.addressOf(at)).set(7, room).call(Op.TRY_GET);
            if (code < 0) {
                KelixException error = block.error(code);
                if (error.kind() == ErrorKind.BUFFER_TOO_SMALL
                        && error.neededBytes() <= into.remaining()) {
                    return -2;
                }
                throw error;
            }
            if (code != 0) {
                return code == 1 ? -1 : -2;
            }
            into.put(block.data().slice(at, (int) block.out(0)));
            return (int) block.out(0);
        } finally {
            leave();
        }
    }

    /**
     * Gets a part of a value. Of a value of more than a few KiB only the part is read.
     *
     * @param table the table
     * @param key the key
     * @param from the first byte of the part
     * @param length how many bytes at most
     * @return the part, which is shorter or empty where the value ends, or null: there is no such
     *     key
     */
    public Range getRange(Table table, byte[] key, long from, int length) {
        Block.need(table, "table");
        Block.need(key, "key");
        if (from < 0 || length < 0) {
            throw KelixException.invalid("no value has " + length + " bytes from " + from + " on");
        }
        Block block = enter().block;
        try {
            block.begin((long) key.length + length, 2).table(1, table).bytes(4, key);
            int at = block.take(length);
            block.set(6, block.addressOf(at)).set(7, length).set(8, from);
            if (block.must(Op.GET_RANGE) != 0) {
                return null;
            }
            byte[] part = new byte[(int) block.out(2)];
            block.data().get(at, part);
            return new Range(part, block.out(0), block.out(1));
        } finally {
            leave();
        }
    }

    /**
     * A part of a value.
     *
     * @param bytes the part
     * @param valueBytes how many bytes the whole value has
     * @param version the item's version: parts whose versions are the same are of the same value
     */
    public record Range(byte[] bytes, long valueBytes, long version) {}

    /**
     * Puts a plain value.
     *
     * @param table the table
     * @param key the key
     * @param value the value
     * @return the key's new version
     * @throws KelixException {@link ErrorKind#OUT_OF_MEMORY}, {@link ErrorKind#FROZEN}, {@link
     *     ErrorKind#DENIED}; of a server that does not answer the {@link KelixException#effect()}
     *     tells whether it was done
     */
    public long put(Table table, byte[] key, byte[] value) {
        Block block = enterToWrite(table, key, value);
        try {
            block.must(Op.PUT);
            return block.out(0);
        } finally {
            leave();
        }
    }

    /**
     * Puts a plain value with flags and an end, and only if the key is as expected.
     *
     * @param table the table
     * @param key the key
     * @param value the value
     * @param options how
     * @return what came of it
     */
    public Compared put(Table table, byte[] key, byte[] value, PutOptions options) {
        Block.need(options, "options");
        Block block = enterToWrite(table, key, value);
        try {
            block.set(8, options.flags & 0xffffffffL)
                    .set(9, options.expect)
                    .set(10, options.expected);
            block.set(11, options.endsIn).set(12, options.endsAt);
            return Compared.of(block.must(Op.PUT_WITH), block.out(0));
        } finally {
            leave();
        }
    }

    /** Enters with table, key and value in words 1 to 7. */
    private Block enterToWrite(Table table, byte[] key, byte[] value) {
        Block.need(table, "table");
        Block.need(key, "key");
        Block.need(value, "value");
        Block block = enter().block;
        try {
            return block.begin((long) key.length + value.length, 2)
                    .table(1, table)
                    .bytes(4, key)
                    .bytes(6, value);
        } catch (Throwable error) {
            leave();
            throw error;
        }
    }

    private Block enterWithKey(Table table, byte[] key) {
        return enterToWrite(table, key, NOTHING);
    }

    private static final byte[] NOTHING = new byte[0];

    /**
     * Deletes a key.
     *
     * @param table the table
     * @param key the key
     * @return whether it was there
     */
    public boolean delete(Table table, byte[] key) {
        Block block = enterWithKey(table, key);
        try {
            return block.must(Op.DELETE) == 0;
        } finally {
            leave();
        }
    }

    /**
     * Puts a plain value if the key's version is still the expected one.
     *
     * @param table the table
     * @param key the key
     * @param expected the version; {@link #ABSENT}: if there is no such key
     * @param value the value
     * @return what came of it
     */
    public Compared compareAndSet(Table table, byte[] key, long expected, byte[] value) {
        Block block = enterToWrite(table, key, value);
        try {
            block.set(8, expected == ABSENT ? 0 : 1).set(9, expected);
            return Compared.of(block.must(Op.COMPARE_AND_SET), block.out(0));
        } finally {
            leave();
        }
    }

    /**
     * Deletes a key if its version is still the expected one.
     *
     * @param table the table
     * @param key the key
     * @param expected the version
     * @return what came of it
     */
    public Compared compareAndDelete(Table table, byte[] key, long expected) {
        Block block = enterWithKey(table, key);
        try {
            return Compared.of(block.set(6, expected).must(Op.COMPARE_AND_DELETE), block.out(0));
        } finally {
            leave();
        }
    }

    // ---- items ----

    /**
     * Gets an item with its attributes, links, version, flags and end.
     *
     * @param table the table
     * @param key the key
     * @return the item, or null: there is no such key
     */
    public Item getItem(Table table, byte[] key) {
        Block block = enterWithKey(table, key);
        try {
            long item = core.spare(Handle.Kind.ITEM);
            block.begin(key.length, 1).bytes(4, key).table(1, table).set(6, item);
            return block.must(Op.GET_ITEM) == 0 ? core.item() : null;
        } finally {
            leave();
        }
    }

    /**
     * Puts an item with attributes and links.
     *
     * @param table the table
     * @param key the key
     * @param item the item
     * @return the key's new version
     * @throws KelixException {@link ErrorKind#INVALID_ARGUMENT}: the table takes no attributes, or
     *     a link leads to a key that cannot be
     */
    public long putItem(Table table, byte[] key, NewItem item) {
        return putItem(table, key, item, 0, 0, Op.PUT_ITEM, 0).version();
    }

    /**
     * Puts an item with attributes and links if the key's version is still the expected one.
     *
     * @param table the table
     * @param key the key
     * @param item the item
     * @param expected the version; {@link #ABSENT}: if there is no such key
     * @return what came of it
     */
    public Compared putItem(Table table, byte[] key, NewItem item, long expected) {
        return putItem(table, key, item, expected == ABSENT ? 1 : 2, expected, Op.PUT_ITEM, 0);
    }

    private Compared putItem(
            Table table, byte[] key, NewItem item, int expect, long expected, Op op, long number) {
        Block.need(table, "table");
        Block.need(key, "key");
        Block.need(item, "item");
        Block block = enter().block;
        try {
            long builder = core.spare(Handle.Kind.BUILDER);
            block.begin(key.length + item.bytes(), 1 + item.strings());
            item.write(block.table(1, table).bytes(4, key).set(6, builder), 7);
            return Compared.of(
                    block.set(12, expect).set(13, expected).set(16, number).must(op), block.out(0));
        } finally {
            leave();
        }
    }

    /**
     * Goes along an item's first link under a name. In shared memory that is one read.
     *
     * @param item the item
     * @param name the name
     * @return the target, or null: it does not exist (any more)
     * @throws KelixException {@link ErrorKind#NO_SUCH_ATTRIBUTE}: the item has no such link; {@link
     *     ErrorKind#SUPERSEDED}: it is of another server
     */
    public Item follow(Item item, String name) {
        byte[] bytes = Block.name(name, "name of a link");
        if (!Block.need(item, "item").hasHandle()) {
            throw KelixException.of(
                    ErrorKind.NO_SUCH_ATTRIBUTE,
                    "the item has no link " + name,
                    false,
                    Effect.NO,
                    "follow",
                    0);
        }
        Block block = enter().block;
        try {
            long target = core.spare(Handle.Kind.ITEM);
            long from = item.handle().take();
            try {
                block.begin(bytes.length, 1).bytes(2, bytes).set(1, from).set(4, target);
                return block.must(Op.FOLLOW) == 0 ? core.item() : null;
            } finally {
                item.handle().put(from);
            }
        } finally {
            leave();
        }
    }

    /**
     * Goes along the first link under each of these names, one after the other.
     *
     * @param item the item
     * @param names the names, one at least
     * @return the last target, or null: one of them does not exist (any more)
     * @throws KelixException {@link ErrorKind#NO_SUCH_ATTRIBUTE}: an item on the way has no such
     *     link
     */
    public Item followPath(Item item, String... names) {
        List<byte[]> path = new ArrayList<>();
        for (String name : Block.need(names, "names of links")) {
            path.add(Block.name(name, "name of a link"));
        }
        if (path.isEmpty()) {
            throw KelixException.invalid("there are no names to go along");
        }
        if (!Block.need(item, "item").hasHandle()) {
            throw KelixException.of(
                    ErrorKind.NO_SUCH_ATTRIBUTE,
                    "the item has no link " + names[0],
                    false,
                    Effect.NO,
                    "follow",
                    0);
        }
        Block block = enter().block;
        try {
            long target = core.spare(Handle.Kind.ITEM);
            long from = item.handle().take();
            try {
                long list = strings(block, path, 0);
                block.set(1, from).set(2, list).set(3, path.size()).set(4, target);
                return block.must(Op.FOLLOW_PATH) == 0 ? core.item() : null;
            } finally {
                item.handle().put(from);
            }
        } finally {
            leave();
        }
    }

    private static long length(List<byte[]> strings) {
        long bytes = 0;
        for (byte[] string : strings) {
            bytes += string.length;
        }
        return bytes;
    }

    /**
     * Begins a call with an array of byte strings, and so many bytes of others beside. Returns its
     * address.
     */
    private static long strings(Block block, List<byte[]> strings, int beside) {
        block.begin(length(strings) + 16L * strings.size() + beside, strings.size() + 2);
        int start = block.take(16 * strings.size());
        for (int index = 0; index < strings.size(); index++) {
            block.string(start + 16 * index, strings.get(index));
        }
        return block.addressOf(start);
    }

    // ---- many keys ----

    /** Writes a list into a block: four words from this one on. */
    private static void list(Block block, int at, List<byte[]> strings, long bytes) {
        int offsets = block.take(8 * (strings.size() + 1));
        int data = block.take((int) bytes);
        ByteBuffer to = block.data();
        int end = 0;
        for (int index = 0; index < strings.size(); index++) {
            byte[] string = strings.get(index);
            to.putLong(offsets + 8 * index, end);
            to.put(data + end, string);
            end += string.length;
        }
        to.putLong(offsets + 8 * strings.size(), end);
        block.set(at, strings.size()).set(at + 1, block.addressOf(data));
        block.set(at + 2, end).set(at + 3, block.addressOf(offsets));
    }

    /** A list that nobody changes while it is passed. */
    private static List<byte[]> checked(List<byte[]> list, String what) {
        List<byte[]> copied = new ArrayList<>(Block.need(list, "list of " + what + "s"));
        copied.forEach(each -> Block.need(each, what));
        return copied;
    }

    /** Gets values, whose entries stand in the memory that is returned until the next call. */
    private ByteBuffer values(Table table, List<byte[]> keys) {
        Block block = core.block;
        long values = core.spare(Handle.Kind.VALUES);
        long bytes = length(keys);
        block.begin(bytes + 8L * (keys.size() + 1), 2).table(1, table).set(8, values);
        list(block, 4, keys, bytes);
        block.must(Op.MULTI_GET);
        return keys.isEmpty()
                ? null
                : Block.memory(block.out(2), (long) VALUE_ENTRY_BYTES * keys.size());
    }

    /**
     * Gets the values of many keys, whose reads overlap.
     *
     * @param table the table
     * @param keys the keys
     * @return a value each, in order, or null where the key is absent
     */
    public List<byte[]> multiGet(Table table, List<byte[]> keys) {
        Block.need(table, "table");
        List<byte[]> checked = checked(keys, "key");
        Block block = enter().block;
        try {
            ByteBuffer entries = values(table, checked);
            List<byte[]> values = new ArrayList<>(checked.size());
            for (int at = 0; at < VALUE_ENTRY_BYTES * checked.size(); at += VALUE_ENTRY_BYTES) {
                long start = entries.getLong(at);
                values.add(
                        start == NO_VALUE
                                ? null
                                : Block.copy(block.out(0) + start, entries.getLong(at + 8)));
            }
            return values;
        } finally {
            leave();
        }
    }

    /**
     * Gets the values of many keys into one buffer, at its position, which moves behind them.
     *
     * @param table the table
     * @param keys the keys
     * @param into where the values go
     * @param starts an entry a key at least: becomes where its value begins in the buffer, or -1:
     *     the key is absent
     * @param lengths an entry a key at least: becomes how many bytes the value has, or 0
     * @throws KelixException {@link ErrorKind#BUFFER_TOO_SMALL}: the values do not fit; then
     *     nothing was written
     */
    public void multiGet(
            Table table, List<byte[]> keys, ByteBuffer into, int[] starts, int[] lengths) {
        Block.need(table, "table");
        Block.need(starts, "array of starts");
        Block.need(lengths, "array of lengths");
        List<byte[]> checked = checked(keys, "key");
        if (Block.need(into, "buffer").isReadOnly()) {
            throw KelixException.invalid("the buffer can only be read");
        }
        if (starts.length < checked.size() || lengths.length < checked.size()) {
            throw KelixException.invalid(
                    "there are " + checked.size() + " keys, and fewer starts or lengths");
        }
        Block block = enter().block;
        try {
            ByteBuffer entries = values(table, checked);
            long bytes = block.out(1);
            if (bytes > into.remaining()) {
                throw KelixException.of(
                        ErrorKind.BUFFER_TOO_SMALL,
                        "the values take "
                                + bytes
                                + " bytes, and the buffer has "
                                + into.remaining(),
                        false,
                        Effect.NO,
                        "multiGet",
                        bytes);
            }
            int base = into.position();
            for (int index = 0; index < checked.size(); index++) {
                long start = entries.getLong(index * VALUE_ENTRY_BYTES);
                starts[index] = start == NO_VALUE ? -1 : base + (int) start;
                lengths[index] =
                        start == NO_VALUE
                                ? 0
                                : (int) entries.getLong(index * VALUE_ENTRY_BYTES + 8);
            }
            if (bytes > 0) {
                into.put(Block.memory(block.out(0), bytes));
            }
        } finally {
            leave();
        }
    }

    /**
     * Puts many plain values. They have no order among each other.
     *
     * @param table the table
     * @param keys the keys
     * @param values a value each
     * @return the new versions
     * @throws KelixException the first error; others may have been put
     */
    public long[] multiPut(Table table, List<byte[]> keys, List<byte[]> values) {
        Block.need(table, "table");
        List<byte[]> checked = checked(keys, "key");
        List<byte[]> checkedValues = checked(values, "value");
        if (checked.size() != checkedValues.size()) {
            throw KelixException.invalid(
                    "there are "
                            + checked.size()
                            + " keys and "
                            + checkedValues.size()
                            + " values");
        }
        Block block = enter().block;
        try {
            int count = checked.size();
            long keyBytes = length(checked);
            long valueBytes = length(checkedValues);
            block.begin(keyBytes + valueBytes + 24L * (count + 1), 6).table(1, table);
            list(block, 4, checked, keyBytes);
            list(block, 8, checkedValues, valueBytes);
            int at = block.take(8 * count);
            block.set(12, 0).set(13, block.addressOf(at)).must(Op.MULTI_PUT);
            long[] versions = new long[count];
            for (int index = 0; index < count; index++) {
                versions[index] = block.data().getLong(at + 8 * index);
            }
            return versions;
        } finally {
            leave();
        }
    }

    // ---- ranges ----

    /** The handle of rows, told which attributes they are to bring. */
    long rows(List<byte[]> attributes) {
        long rows = core.spare(Handle.Kind.ROWS);
        long list = strings(core.block, attributes, 0);
        core.block.set(1, rows).set(2, list).set(3, attributes.size()).must(Op.SET_ATTRIBUTES);
        return rows;
    }

    private static List<byte[]> names(String[] attributes) {
        List<byte[]> names = new ArrayList<>();
        for (String attribute : Block.need(attributes, "names of attributes")) {
            names.add(Block.name(attribute, "name of an attribute"));
        }
        return names;
    }

    private Block enterToScan(Table table, Scan scan) {
        Block.need(table, "table");
        Block.need(scan, "scan");
        Block block = enter().block;
        try {
            scan.write(block.begin(scan.bytes(), Scan.STRINGS).table(1, table), 4);
            return block;
        } catch (Throwable error) {
            leave();
            throw error;
        }
    }

    /**
     * Scans a range of a table, all of it at once.
     *
     * @param table the table
     * @param scan which keys
     * @param attributes names of attributes that are wanted beside each value
     * @return keys, values and attributes
     */
    public Rows scan(Table table, Scan scan, String... attributes) {
        Block.need(table, "table");
        Block.need(scan, "scan");
        List<byte[]> names = names(attributes);
        Block block = enter().block;
        try {
            long rows = rows(names);
            scan.write(block.begin(scan.bytes(), Scan.STRINGS).table(1, table), 4);
            block.set(16, rows).must(Op.SCAN_INTO);
            return new Rows(block, names.size());
        } finally {
            leave();
        }
    }

    /**
     * Begins a scan that goes on page by page, or item by item. A key that is there from its
     * beginning to its end comes exactly once, one that is put or deleted meanwhile at most once.
     *
     * @param table the table
     * @param scan which keys
     * @param attributes names of attributes that are wanted beside each value
     * @return the scan
     */
    public Cursor cursor(Table table, Scan scan, String... attributes) {
        List<byte[]> names = names(attributes);
        Block block = enterToScan(table, scan);
        try {
            block.must(Op.OPEN_SCAN);
            return new Cursor(this, block.out(0), names);
        } finally {
            leave();
        }
    }

    /**
     * Counts the keys of a range, each once.
     *
     * @param table the table
     * @param scan which keys
     * @return how many they are
     */
    public long count(Table table, Scan scan) {
        return count(table, scan, Op.COUNT);
    }

    /**
     * About how many keys a range has, without a look at each. Of a hash table how many keys there
     * are.
     *
     * @param table the table
     * @param scan which keys
     * @return about how many they are; exact for a few
     */
    public long estimate(Table table, Scan scan) {
        return count(table, scan, Op.ESTIMATE);
    }

    private long count(Table table, Scan scan, Op op) {
        Block block = enterToScan(table, scan);
        try {
            block.must(op);
            return block.out(0);
        } finally {
            leave();
        }
    }

    // ---- many links ----

    /**
     * Reads all that a frontier leads to, the reads overlapping.
     *
     * @param frontier the frontier
     * @return an item each, in order, or null where the target does not exist (any more)
     */
    public List<Item> visit(Frontier frontier) {
        return visit(frontier, 0, Block.need(frontier, "frontier").size());
    }

    /**
     * Reads a part of what a frontier leads to, the reads overlapping.
     *
     * @param frontier the frontier
     * @param first the index of the first target
     * @param count how many targets
     * @return an item each, in order, or null where the target does not exist (any more)
     */
    public List<Item> visit(Frontier frontier, int first, int count) {
        if (first < 0 || count < 0 || count > Block.need(frontier, "frontier").size() - first) {
            throw KelixException.invalid(
                    "the frontier has not "
                            + count
                            + " targets from the one with the index "
                            + first
                            + " on");
        }
        Block block = enter().block;
        try {
            long taken = frontier.handle().take();
            try (Items items = new Items(block, count, 4L * count, 1)) {
                int results = block.take(4 * count);
                block.set(1, taken).set(2, first).set(3, count).set(4, items.address());
                block.set(5, block.addressOf(results)).must(Op.VISIT);
                List<Item> visited = new ArrayList<>(count);
                for (int index = 0; index < count; index++) {
                    boolean isThere = block.data().getInt(results + 4 * index) == 0;
                    visited.add(isThere ? items.item(index) : null);
                }
                return visited;
            } finally {
                frontier.handle().put(taken);
            }
        } finally {
            leave();
        }
    }

    /**
     * Begins a walk along links.
     *
     * @param table the table of the item where it begins
     * @param key the key of that item
     * @param walk where it goes
     * @return the walk
     */
    public Walker walk(Table table, byte[] key, Walk walk) {
        Block.need(table, "table");
        Block.need(key, "key");
        Block.need(walk, "walk");
        Block block = enter().block;
        try {
            long links = strings(block, walk.links, key.length + 40);
            int from = block.take(40);
            block.data().putLong(from, table.word0);
            block.data().putLong(from + 8, table.word1);
            block.data().putLong(from + 16, table.word2);
            block.string(from + 24, key);
            block.set(1, block.addressOf(from)).set(2, 1).set(3, links).set(4, walk.links.size());
            block.set(5, walk.depth).set(6, walk.isDepthFirst ? 1 : 0).must(Op.OPEN_WALK);
            return new Walker(this, block.out(0));
        } finally {
            leave();
        }
    }

    // ---- loaded datasets ----

    /**
     * Opens a view of the generation of a dataset that is in force.
     *
     * @param dataset the dataset's name
     * @return the view
     * @throws NoSuchTableException there is no such dataset
     */
    public View view(String dataset) {
        byte[] bytes = Block.name(dataset, "name of a dataset");
        Block block = enter().block;
        try {
            block.begin(bytes.length, 1).bytes(1, bytes).must(Op.OPEN_VIEW);
            return new View(this, block.out(0), block.out(1));
        } finally {
            leave();
        }
    }

    /**
     * Begins to build a generation of a dataset.
     *
     * @param dataset the dataset's name
     * @param tables its tables
     * @return the build
     * @throws KelixException {@link ErrorKind#INVALID_ARGUMENT}: another one of the dataset is
     *     being built, or a name is taken
     */
    public Build build(String dataset, List<NewTable> tables) {
        byte[] bytes = Block.name(dataset, "name of a dataset");
        List<String> names = new ArrayList<>();
        List<NewTable> copied = new ArrayList<>(Block.need(tables, "list of tables"));
        long all = bytes.length + 24L * copied.size();
        List<byte[]> strings = new ArrayList<>();
        for (NewTable table : copied) {
            names.add(Block.need(table, "table").name());
            strings.add(Block.name(table.name(), "name of a table"));
            Block.need(table.kind(), "kind of a table");
        }
        Block block = enter().block;
        try {
            block.begin(all + length(strings), strings.size() + 2).bytes(1, bytes);
            int start = block.take(24 * copied.size());
            for (int index = 0; index < copied.size(); index++) {
                block.string(start + 24 * index, strings.get(index));
                block.data().putInt(start + 24 * index + 16, copied.get(index).kind().ordinal());
                block.data().putInt(start + 24 * index + 20, copied.get(index).overlay() ? 1 : 0);
            }
            block.set(3, block.addressOf(start)).set(4, copied.size()).must(Op.OPEN_BUILD);
            return new Build(this, block.out(0), names);
        } finally {
            leave();
        }
    }

    // ---- without waiting ----

    /**
     * Submits a get of an item. It begins with the next {@link #poll}, together with all others
     * submitted until then. An error here means that nothing was submitted.
     *
     * @param table the table
     * @param key the key
     * @param number the caller's number for it, which its {@link Completion} has
     */
    public void submitGet(Table table, byte[] key, long number) {
        submit(enterWithKey(table, key), Op.SUBMIT_GET, number);
    }

    /**
     * Submits a put of a plain value.
     *
     * @param table the table
     * @param key the key
     * @param value the value
     * @param number the caller's number for it
     */
    public void submitPut(Table table, byte[] key, byte[] value, long number) {
        submit(enterToWrite(table, key, value), Op.SUBMIT_PUT, number);
    }

    /**
     * Submits a put of an item with attributes and links.
     *
     * @param table the table
     * @param key the key
     * @param item the item
     * @param number the caller's number for it
     */
    public void submitPutItem(Table table, byte[] key, NewItem item, long number) {
        putItem(table, key, item, 0, 0, Op.SUBMIT_PUT_ITEM, number);
    }

    /**
     * Submits a delete.
     *
     * @param table the table
     * @param key the key
     * @param number the caller's number for it
     */
    public void submitDelete(Table table, byte[] key, long number) {
        submit(enterWithKey(table, key), Op.SUBMIT_DELETE, number);
    }

    /**
     * Submits a put of a plain value that is done if the key's version is still the expected one.
     *
     * @param table the table
     * @param key the key
     * @param expected the version; {@link #ABSENT}: if there is no such key
     * @param value the value
     * @param number the caller's number for it
     */
    public void submitCompareAndSet(
            Table table, byte[] key, long expected, byte[] value, long number) {
        Block block = enterToWrite(table, key, value);
        submit(
                block.set(8, expected == ABSENT ? 0 : 1).set(9, expected),
                Op.SUBMIT_COMPARE_AND_SET,
                number);
    }

    /**
     * Submits a delete that is done if the key's version is still the expected one.
     *
     * @param table the table
     * @param key the key
     * @param expected the version
     * @param number the caller's number for it
     */
    public void submitCompareAndDelete(Table table, byte[] key, long expected, long number) {
        submit(enterWithKey(table, key).set(6, expected), Op.SUBMIT_COMPARE_AND_DELETE, number);
    }

    /**
     * Submits the read along an item's first link under a name.
     *
     * @param item the item
     * @param name the name
     * @param number the caller's number for it
     */
    public void submitFollow(Item item, String name, long number) {
        byte[] bytes = Block.name(name, "name of a link");
        if (!Block.need(item, "item").hasHandle()) {
            throw KelixException.of(
                    ErrorKind.NO_SUCH_ATTRIBUTE,
                    "the item has no link " + name,
                    false,
                    Effect.NO,
                    "submitFollow",
                    0);
        }
        Block block = enter().block;
        try {
            long from = item.handle().take();
            try {
                block.begin(bytes.length, 1)
                        .bytes(2, bytes)
                        .set(1, from)
                        .set(16, number)
                        .must(Op.SUBMIT_FOLLOW);
            } finally {
                item.handle().put(from);
            }
        } finally {
            leave();
        }
    }

    /**
     * Submits the first page of a scan.
     *
     * @param table the table
     * @param scan which keys
     * @param number the caller's number for it
     */
    public void submitScan(Table table, Scan scan, long number) {
        submit(enterToScan(table, scan), Op.SUBMIT_SCAN, number);
    }

    /**
     * Submits the next page of a scan, which is of no further use then.
     *
     * @param scan the rest of a page that was submitted, or a scan that was opened
     * @param number the caller's number for it
     */
    public void submitPage(Cursor scan, long number) {
        Block.need(scan, "scan");
        Block block = enter().block;
        try {
            long taken = scan.handle().take();
            try {
                block.set(1, taken).set(16, number).must(Op.SUBMIT_PAGE);
            } finally {
                scan.handle().put(taken);
            }
        } finally {
            leave();
        }
        scan.close();
    }

    private void submit(Block block, Op op, long number) {
        try {
            block.set(16, number).must(op);
        } finally {
            leave();
        }
    }

    /**
     * How many submitted operations were not told by {@link #poll} yet.
     *
     * @return a number of operations
     */
    public int outstanding() {
        return number(Op.OUTSTANDING);
    }

    /**
     * Begins what was submitted, and tells what has ended.
     *
     * @param most how many at most, one at least
     * @param wait for how long to wait until something has ended; {@link Duration#ZERO}: not at all
     * @return what has ended; none: nothing is under way, or the time is over
     */
    public List<Completion> poll(int most, Duration wait) {
        if (most < 1) {
            throw KelixException.invalid("a poll for " + most + " operations: one is the least");
        }
        Block.need(wait, "time to wait");
        long end = System.nanoTime() + (wait.isNegative() ? 0 : Times.atMost(wait));
        enter();
        try {
            while (true) {
                List<Completion> ended = Completions.poll(this, core, most);
                long left = end - System.nanoTime();
                if (ended == null) {
                    return List.of();
                }
                if (!ended.isEmpty() || left <= 0) {
                    return ended;
                }
                Completions.await(core, -1, left);
            }
        } finally {
            leave();
        }
    }

    /**
     * The descriptor that becomes readable when answers to submitted operations have arrived. It is
     * the session's: wait for it, and do nothing else with it. A session that connects anew has
     * another one.
     *
     * @return the descriptor's number
     */
    public int descriptor() {
        return number(Op.DESCRIPTOR);
    }

    private int number(Op op) {
        Block block = enter().block;
        try {
            block.must(op);
            return (int) block.out(0);
        } finally {
            leave();
        }
    }

    // ---- the session and the server ----

    /**
     * How the session reaches the server.
     *
     * @return "shm", "verbs" or "tcp"
     */
    public String fabric() {
        return text(Op.FABRIC);
    }

    /**
     * Whether the server is a mirror. Then reads are of the mirror's memory, on this host, and
     * writes go to the primary over a connection that the first of them opens, with the client's
     * own token and certificates.
     *
     * @return whether it is
     */
    public boolean isMirror() {
        return number(Op.IS_MIRROR) != 0;
    }

    /**
     * Where the server is that the mirror follows.
     *
     * @return HOST:PORT; empty: this is no mirror
     */
    public Optional<String> primary() {
        Block block = enter().block;
        try {
            return block.must(Op.PRIMARY) == 0 ? Optional.of(block.toldText(0)) : Optional.empty();
        } finally {
            leave();
        }
    }

    /**
     * How long ago the mirror is known to have had all that its primary had.
     *
     * @return the time; empty: this is no mirror, or it has not heard from its primary yet
     */
    public Optional<Duration> lag() {
        Block block = enter().block;
        try {
            return block.must(Op.LAG) == 0
                    ? Optional.of(Duration.ofNanos(block.out(0)))
                    : Optional.empty();
        } finally {
            leave();
        }
    }

    /**
     * What the server tells of itself, its shards and its clients.
     *
     * @return JSON
     */
    public String statistics() {
        return text(Op.STATISTICS);
    }

    private String text(Op op) {
        Block block = enter().block;
        try {
            block.must(op);
            return block.toldText(0);
        } finally {
            leave();
        }
    }

    /**
     * What the operations of this session, and of those that used it out of the pool before, have
     * cost.
     *
     * @return the cost
     */
    public Cost cost() {
        Block block = enter().block;
        try {
            block.must(Op.COST);
            return new Cost(block.out(0), block.out(1), block.out(2), block.out(3), block.out(4));
        } finally {
            leave();
        }
    }

    /**
     * Has the server take a snapshot, and waits for it. For the user whose the server is, on its
     * host; the server has to be told where snapshots go.
     *
     * @return the snapshot
     */
    public Snapshot snapshot() {
        Block block = enter().block;
        try {
            block.must(Op.SNAPSHOT);
            return new Snapshot(
                    block.toldText(0), block.out(2), Double.longBitsToDouble(block.out(3)));
        } finally {
            leave();
        }
    }

    /**
     * Whether writes are on the server's disk before they return, from now on. The session ends
     * with {@link #close()} then, and does not go back into the pool.
     *
     * @param durable whether they are
     */
    public void setDurable(boolean durable) {
        Block block = enter().block;
        try {
            handle.isSpent = true;
            block.set(1, durable ? 1 : 0).must(Op.SET_DURABLE);
        } finally {
            leave();
        }
    }
}
