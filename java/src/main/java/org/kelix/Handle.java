package org.kelix;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.lang.ref.Cleaner;
import java.util.concurrent.locks.LockSupport;

/**
 * Something of the native library's that has to be freed once, and never while a call is using it.
 *
 * <p>A call takes the address out, and puts it back when it is done. So a second thread finds no
 * address and is refused, and whoever closes waits until there is one. Nothing else keeps native
 * memory from being used after it was freed, so every call goes through here. As a {@link Runnable}
 * it is what a {@link Cleaner} runs when its owner was forgotten; therefore it refers to no owner.
 */
class Handle implements Runnable {
    /** Types of handles, by the numbers of kelix_java_free(). */
    enum Kind {
        CLIENT,
        SESSION,
        ITEM,
        BUILDER,
        VALUES,
        ROWS,
        SCAN,
        FRONTIER,
        WALK,
        VIEW,
        BUILD
    }

    private static final Cleaner CLEANER = Cleaner.create();
    private static final VarHandle ADDRESS;

    static {
        try {
            ADDRESS = MethodHandles.lookup().findVarHandle(Handle.class, "address", long.class);
        } catch (ReflectiveOperationException error) {
            throw new ExceptionInInitializerError(error);
        }
    }

    final Kind kind;

    /** 0 while a call has it, and after it was freed. */
    private volatile long address;

    private volatile boolean isClosing;
    private volatile boolean isFreed;

    Handle(Kind kind, long address) {
        this.kind = kind;
        this.address = address;
    }

    /** Frees it when its owner cannot be reached any more, unless it was closed before. */
    Cleaner.Cleanable with(Object owner) {
        return clean(owner, this);
    }

    /** Runs an action when an object cannot be reached any more, unless it was run before. */
    static Cleaner.Cleanable clean(Object owner, Runnable action) {
        return CLEANER.register(owner, action);
    }

    /** Takes the address for one call. */
    final long take() {
        long taken = address;
        if (taken == 0 || !ADDRESS.compareAndSet(this, taken, 0L)) {
            throw refusal();
        }
        // Without this look a thread that calls without a pause could keep the closing one waiting.
        if (isClosing) {
            put(taken);
            throw refusal();
        }
        return taken;
    }

    /** Gives the address back. */
    final void put(long taken) {
        ADDRESS.setRelease(this, taken);
    }

    private KelixException refusal() {
        String what = "the " + kind.name().toLowerCase(java.util.Locale.ROOT);
        if (isClosing) {
            return KelixException.invalid(what + " was closed");
        }
        return KelixException.of(
                ErrorKind.BUSY,
                what + " is being used by another call: give each thread its own",
                true,
                Effect.NO,
                "",
                0);
    }

    final boolean isClosed() {
        return isClosing;
    }

    /** Waits until no call is inside, and frees it. Once it was freed this does nothing. */
    @Override
    public final void run() {
        isClosing = true;
        boolean wasInterrupted = false;
        while (!isFreed) {
            long taken = (long) ADDRESS.getAndSet(this, 0L);
            if (taken != 0) {
                try {
                    free(taken);
                } finally {
                    isFreed = true;
                }
            } else if (!isFreed) {
                LockSupport.parkNanos(20_000);
                // A thread that was interrupted does not park, and would only spin.
                wasInterrupted |= Thread.interrupted();
            }
        }
        if (wasInterrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** What closing does, once. */
    void free(long taken) {
        Bridge.free(kind.ordinal(), taken);
    }
}
