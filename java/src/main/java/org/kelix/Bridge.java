package org.kelix;

import java.nio.ByteBuffer;

/**
 * The functions of the native library, by JNI. Java 22 and newer take the class of the same name
 * that stands below META-INF/versions/22 in the jar, which has the same methods by
 * java.lang.foreign.
 */
final class Bridge {
    /** Whether {@link #tryGet} can be called: native code reads arrays of Java where they stand. */
    static final boolean READS_ARRAYS = readsArrays();

    private Bridge() {}

    /**
     * A constant would be compiled into other classes, which are the same for all versions of Java.
     */
    private static boolean readsArrays() {
        return false;
    }

    static void load(String path) {
        System.load(path);
    }

    /** Tells the names of the operations and the version of the library. */
    static native void about(long block);

    /** Does an operation whose arguments stand in a block. */
    static native int call(int operation, long block);

    /** Gets a value into native memory. Returns its length, or the code less 1,000. */
    static native long get(
            long session,
            long table0,
            long table1,
            long table2,
            long key,
            long keyBytes,
            long into,
            long room);

    static long tryGet(
            long session,
            long table0,
            long table1,
            long table2,
            byte[] key,
            byte[] into,
            int offset,
            int room) {
        throw new AssertionError("JNI has no call that reads arrays where they stand");
    }

    static long tryGet(
            long session, long table0, long table1, long table2, ByteBuffer key, ByteBuffer into) {
        throw new AssertionError("JNI has no call that reads arrays where they stand");
    }

    /** Frees a handle of a {@link Handle.Kind}. */
    static native void free(int kind, long handle);

    /** Memory of the library's, to be read before the next call. */
    static native ByteBuffer buffer(long address, long bytes);

    /** The address of a direct buffer's first byte. */
    static native long address(ByteBuffer buffer);

    /** Copies memory of the library's. */
    static native void read(long address, byte[] into, int offset, int length);
}
