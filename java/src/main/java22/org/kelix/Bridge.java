package org.kelix;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.nio.ByteBuffer;
import java.nio.file.Path;

/**
 * The functions of the native library, by java.lang.foreign. For Java 17 to 21 there is a class of
 * the same name.
 */
final class Bridge {
    /** Whether {@link #tryGet} can be called: native code reads arrays of Java where they stand. */
    static final boolean READS_ARRAYS = readsArrays();

    private static SymbolLookup library;

    private Bridge() {}

    /** The handles are made when the library is there: {@link Library} loads before it calls. */
    private static final class Functions {
        private static final ValueLayout.OfInt INT = ValueLayout.JAVA_INT;
        private static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG;

        static final MethodHandle ABOUT = find("kelix_java_about", FunctionDescriptor.ofVoid(LONG));
        static final MethodHandle CALL =
                find("kelix_java_call", FunctionDescriptor.of(INT, INT, LONG));
        static final MethodHandle GET =
                find(
                        "kelix_java_get",
                        FunctionDescriptor.of(
                                LONG, LONG, LONG, LONG, LONG, LONG, LONG, LONG, LONG));

        /**
         * A critical call holds the garbage collector up, so it may be made of functions only that
         * neither wait nor call the system: kelix_try_get() is one.
         */
        static final MethodHandle TRY_GET =
                find(
                        "kelix_java_try_get",
                        FunctionDescriptor.of(
                                LONG,
                                LONG,
                                LONG,
                                LONG,
                                LONG,
                                ValueLayout.ADDRESS,
                                LONG,
                                ValueLayout.ADDRESS,
                                LONG),
                        Linker.Option.critical(true));

        static final MethodHandle FREE =
                find("kelix_java_free", FunctionDescriptor.ofVoid(INT, LONG));

        private static MethodHandle find(
                String name, FunctionDescriptor types, Linker.Option... options) {
            MemorySegment function =
                    library.find(name)
                            .orElseThrow(
                                    () ->
                                            new UnsatisfiedLinkError(
                                                    "the library of Kelix has no function "
                                                            + name));
            return Linker.nativeLinker().downcallHandle(function, types, options);
        }
    }

    /**
     * A constant would be compiled into other classes, which are the same for all versions of Java.
     */
    private static boolean readsArrays() {
        return true;
    }

    static void load(String path) {
        library = SymbolLookup.libraryLookup(Path.of(path), Arena.global());
    }

    static void about(long block) {
        try {
            Functions.ABOUT.invokeExact(block);
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    static int call(int operation, long block) {
        try {
            return (int) Functions.CALL.invokeExact(operation, block);
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    static long get(
            long session,
            long table0,
            long table1,
            long table2,
            long key,
            long keyBytes,
            long into,
            long room) {
        try {
            return (long)
                    Functions.GET.invokeExact(
                            session, table0, table1, table2, key, keyBytes, into, room);
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    /** Gets a value into an array. Returns its length, or the code less 1,000. */
    static long tryGet(
            long session,
            long table0,
            long table1,
            long table2,
            byte[] key,
            byte[] into,
            int offset,
            int room) {
        MemorySegment array = MemorySegment.ofArray(into);
        return tryGet(
                session,
                table0,
                table1,
                table2,
                MemorySegment.ofArray(key),
                offset == 0 ? array : array.asSlice(offset),
                room);
    }

    /**
     * Gets a value into what remains of a buffer, which may be closed with its arena: that is an
     * exception.
     */
    static long tryGet(
            long session, long table0, long table1, long table2, ByteBuffer key, ByteBuffer into) {
        MemorySegment to = MemorySegment.ofBuffer(into);
        return tryGet(
                session, table0, table1, table2, MemorySegment.ofBuffer(key), to, to.byteSize());
    }

    private static long tryGet(
            long session,
            long table0,
            long table1,
            long table2,
            MemorySegment key,
            MemorySegment into,
            long room) {
        try {
            return (long)
                    Functions.TRY_GET.invokeExact(
                            session, table0, table1, table2, key, key.byteSize(), into, room);
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    static void free(int kind, long handle) {
        try {
            Functions.FREE.invokeExact(kind, handle);
        } catch (Throwable error) {
            throw thrown(error);
        }
    }

    static ByteBuffer buffer(long address, long bytes) {
        return MemorySegment.ofAddress(address).reinterpret(bytes).asByteBuffer();
    }

    static long address(ByteBuffer buffer) {
        return MemorySegment.ofBuffer(buffer.duplicate().clear()).address();
    }

    static void read(long address, byte[] into, int offset, int length) {
        MemorySegment from = MemorySegment.ofAddress(address).reinterpret(length);
        MemorySegment.copy(from, ValueLayout.JAVA_BYTE, 0, into, offset, length);
    }

    private static RuntimeException thrown(Throwable error) {
        if (error instanceof Error fault) {
            throw fault;
        }
        return error instanceof RuntimeException unchecked
                ? unchecked
                : new IllegalStateException(error);
    }
}
