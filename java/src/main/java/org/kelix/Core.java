package org.kelix;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.EnumMap;
import java.util.Map;

/**
 * A session of the native library's with the memory that its calls use, again and again. It goes
 * from {@link Session} to {@link Session} by the pool, and is used by whoever has taken that one's
 * {@link Handle}.
 */
final class Core {
    /** The most that an array can have. */
    static final int ARRAY_MOST = Integer.MAX_VALUE - 16;

    /** What a short get returns of a key that is not there: its code, less 1,000. */
    static final long GOT_ABSENT = 1 - 1000;

    final long address;
    final Block block = new Block(Block.ROOM);

    /** Where values come first that then go to an array of their own length. */
    final byte[] value = new byte[4096];

    private final Map<Handle.Kind, Long> spare = new EnumMap<>(Handle.Kind.class);
    private ByteBuffer lastKey;
    private long lastKeyAddress;
    private ByteBuffer lastInto;
    private long lastIntoAddress;

    Core(long address) {
        this.address = address;
        block.set(0, address);
    }

    /** A handle that is used again from call to call, made when it is first needed. */
    long spare(Handle.Kind kind) {
        Long made = spare.get(kind);
        if (made == null) {
            made = make(kind);
            spare.put(kind, made);
        }
        return made;
    }

    private long make(Handle.Kind kind) {
        switch (kind) {
            case BUILDER -> block.must(Op.NEW_BUILDER);
            case VALUES -> block.must(Op.NEW_VALUES);
            case ROWS -> block.must(Op.NEW_ROWS);
            case ITEM -> {
                int at = block.begin(8, 1).take(8);
                block.set(1, block.addressOf(at)).set(2, 1).must(Op.NEW_ITEMS);
                return block.data().getLong(at);
            }
            default -> throw new AssertionError(kind);
        }
        return block.out(0);
    }

    /**
     * The item that a call has filled the spare handle with, which is the item's from then on if it
     * has links.
     */
    Item item() {
        Item item = new Item(block, spare.get(Handle.Kind.ITEM));
        if (item.hasHandle()) {
            spare.remove(Handle.Kind.ITEM);
        }
        return item;
    }

    void forgetBuffers() {
        lastKey = null;
        lastInto = null;
    }

    /**
     * Address of a direct buffer's first byte. To ask JNI takes longer than to compare with the
     * last buffer.
     */
    private long addressOfKey(ByteBuffer buffer) {
        if (buffer != lastKey) {
            lastKeyAddress = Bridge.address(buffer);
            lastKey = buffer;
        }
        return lastKeyAddress;
    }

    private long addressOfInto(ByteBuffer buffer) {
        if (buffer != lastInto) {
            lastIntoAddress = Bridge.address(buffer);
            lastInto = buffer;
        }
        return lastIntoAddress;
    }

    /**
     * Gets a value between direct buffers. Returns its length, or what is left to {@link #get}: a
     * negative number.
     */
    long getDirect(Table table, ByteBuffer key, ByteBuffer into) {
        return Bridge.get(
                address,
                table.word0,
                table.word1,
                table.word2,
                addressOfKey(key) + key.position(),
                key.remaining(),
                addressOfInto(into) + into.position(),
                into.remaining());
    }

    /** Where the value of the last {@link #get} begins in the block's data. */
    int valueAt;

    /**
     * Gets a value into the block's data, which grows as it has to. Returns its length, or -1:
     * there is none. A value of more than `most` bytes is an error.
     */
    int get(Table table, byte[] key, int most) {
        int room = Math.min(most, Block.ROOM);
        while (true) {
            block.begin((long) key.length + room, 2);
            int keyAt = block.take(key.length);
            block.data().put(keyAt, key);
            valueAt = block.take(room);
            // What the data has anyway, values may use.
            room = Math.min(most, block.data().capacity() - valueAt);
            long keyAddress = block.addressOf(keyAt);
            long intoAddress = block.addressOf(valueAt);
            long got =
                    Bridge.get(
                            address,
                            table.word0,
                            table.word1,
                            table.word2,
                            keyAddress,
                            key.length,
                            intoAddress,
                            room);
            if (got >= 0 || got == GOT_ABSENT) {
                return (int) Math.max(got, -1);
            }
            // Once more with the error, which the short way does not tell. It may be over by then.
            block.table(1, table)
                    .set(4, keyAddress)
                    .set(5, key.length)
                    .set(6, intoAddress)
                    .set(7, room);
            int code = block.call(Op.GET);
            if (code >= 0) {
                return code == 0 ? (int) block.out(0) : -1;
            }
            KelixException error = block.error(code);
            if (error.kind() != ErrorKind.BUFFER_TOO_SMALL || error.neededBytes() > most) {
                throw error;
            }
            room = (int) error.neededBytes();
        }
    }

    /** The value of the last {@link #get}. */
    byte[] value(int length) {
        byte[] copied = new byte[length];
        block.data().get(valueAt, copied);
        return copied;
    }

    byte[] get(Table table, byte[] key) {
        if (Bridge.READS_ARRAYS) {
            long got =
                    Bridge.tryGet(
                            address,
                            table.word0,
                            table.word1,
                            table.word2,
                            key,
                            value,
                            0,
                            value.length);
            if (got >= 0) {
                return Arrays.copyOf(value, (int) got);
            }
            if (got == GOT_ABSENT) {
                return null;
            }
        }
        int got = get(table, key, ARRAY_MOST);
        return got < 0 ? null : value(got);
    }

    void free() {
        spare.forEach((kind, handle) -> Bridge.free(kind.ordinal(), handle));
        Bridge.free(Handle.Kind.SESSION.ordinal(), address);
    }
}
