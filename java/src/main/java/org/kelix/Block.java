package org.kelix;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;

/**
 * Native memory by which operations are called: words for arguments and results, as
 * java/native/kelix_java.c lays them out, and room for keys, values and lists beside. It is of
 * whoever holds the handle that it goes with.
 */
final class Block {
    static final int BYTES = 1536;
    static final int OUT = 32;
    private static final int ERROR = 48;
    private static final int OPERATION_AT = 512;
    private static final int TEXT_AT = 576;

    /** Room for what most calls pass. */
    static final int ROOM = 16 << 10;

    /**
     * What is larger than this, a call needed once: it goes when the session goes back into the
     * pool.
     */
    private static final int ROOM_KEPT = 1 << 20;

    private final ByteBuffer words =
            ByteBuffer.allocateDirect(BYTES).order(ByteOrder.nativeOrder());
    private final long address = Bridge.address(words);
    private final int room;
    private ByteBuffer data;
    private long dataAddress;
    private int used;

    Block(int room) {
        this.room = room;
        allocate(room);
    }

    private void allocate(long bytes) {
        data = ByteBuffer.allocateDirect((int) bytes).order(ByteOrder.nativeOrder());
        dataAddress = Bridge.address(data);
    }

    /** Lets go of what one call needed. Whether there is memory for the next ones. */
    boolean trim() {
        try {
            if (data.capacity() > ROOM_KEPT) {
                allocate(room);
            }
            return true;
        } catch (OutOfMemoryError error) {
            return false;
        }
    }

    int call(Op op) {
        return Bridge.call(op.ordinal(), address);
    }

    /** Calls an operation, and throws its error. */
    int must(Op op) {
        int code = call(op);
        if (code < 0) {
            throw error(code);
        }
        return code;
    }

    Block set(int at, long word) {
        words.putLong(at * Long.BYTES, word);
        return this;
    }

    long out(int at) {
        return words.getLong((OUT + at) * Long.BYTES);
    }

    /** The error that the last call left here. */
    KelixException error(int code) {
        int at = ERROR * Long.BYTES;
        byte[] operation = new byte[(int) words.getLong(at + 24)];
        byte[] text = new byte[(int) words.getLong(at + 32)];
        words.get(OPERATION_AT, operation);
        words.get(TEXT_AT, text);
        return KelixException.of(
                ErrorKind.of(code),
                new String(text, StandardCharsets.UTF_8),
                words.getLong(at) != 0,
                Effect.of((int) words.getLong(at + 8)),
                new String(operation, StandardCharsets.UTF_8),
                words.getLong(at + 16));
    }

    /** Begins a call that passes so many byte strings with so many bytes together. */
    Block begin(long bytes, int strings) {
        // Each string begins at a multiple of eight, as numbers have to.
        long needed = bytes + 8L * strings;
        if (needed > data.capacity()) {
            if (needed > Integer.MAX_VALUE - 16) {
                throw KelixException.invalid(
                        "one call cannot pass " + needed + " bytes: 2 GiB are the most");
            }
            allocate(Math.min(Math.max(needed, 2L * data.capacity()), Integer.MAX_VALUE - 16));
        }
        used = 0;
        return this;
    }

    /** Takes room in this call's data. Returns where it begins. */
    int take(int bytes) {
        int at = used;
        used += bytes + 7 & -8;
        return at;
    }

    /** Passes bytes by two words. */
    Block bytes(int at, byte[] bytes) {
        int start = take(bytes.length);
        data.put(start, bytes);
        return set(at, dataAddress + start).set(at + 1, bytes.length);
    }

    Block table(int at, Table table) {
        return set(at, table.word0).set(at + 1, table.word1).set(at + 2, table.word2);
    }

    ByteBuffer data() {
        return data;
    }

    long addressOf(int at) {
        return dataAddress + at;
    }

    /**
     * Writes the two words of a byte string into data, and the string behind all that was taken.
     */
    void string(int at, byte[] bytes) {
        int start = take(bytes.length);
        data.put(start, bytes);
        data.putLong(at, dataAddress + start);
        data.putLong(at + 8, bytes.length);
    }

    /** Bytes that a call told by two words. */
    byte[] toldBytes(int at) {
        return copy(out(at), out(at + 1));
    }

    String toldText(int at) {
        return new String(toldBytes(at), StandardCharsets.UTF_8);
    }

    static byte[] copy(long address, long length) {
        if (length > Integer.MAX_VALUE - 16) {
            throw KelixException.invalid(
                    "a value of " + length + " bytes is longer than an array: get it in ranges");
        }
        byte[] bytes = new byte[(int) length];
        if (length > 0) {
            Bridge.read(address, bytes, 0, bytes.length);
        }
        return bytes;
    }

    /** Memory of the library's, as numbers of this machine's byte order. */
    static ByteBuffer memory(long address, long bytes) {
        if (bytes > Integer.MAX_VALUE) {
            throw KelixException.invalid(
                    "this brings more than fits into arrays of Java: scan in pages");
        }
        return Bridge.buffer(address, bytes).order(ByteOrder.nativeOrder());
    }

    /** A name as UTF-8. A text with half a pair of surrogates has none. */
    static byte[] name(String name, String what) {
        need(name, what);
        try {
            ByteBuffer bytes = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(name));
            byte[] array = new byte[bytes.remaining()];
            bytes.get(array);
            return array;
        } catch (CharacterCodingException error) {
            throw KelixException.invalid("the " + what + " is no text that UTF-8 can hold");
        }
    }

    static <T> T need(T argument, String what) {
        if (argument == null) {
            throw KelixException.invalid("the " + what + " is null");
        }
        return argument;
    }
}
