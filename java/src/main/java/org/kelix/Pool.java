package org.kelix;

import java.util.Deque;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

/** A client's sessions: those in use, and those that wait for their next use. */
final class Pool implements Runnable {
    /** For so long a caller waits for another one to give a session back. */
    private static final int PATIENCE_SECONDS = 30;

    private final Options options;
    private final Handle client;
    private final Deque<Core> idle = new ConcurrentLinkedDeque<>();
    private final Set<SessionHandle> inUse = ConcurrentHashMap.newKeySet();
    private final Semaphore free;

    /** The client opens one session at a time. */
    private final ReentrantLock opening = new ReentrantLock();

    private volatile boolean isClosed;

    Pool(Options options, long client) {
        this.options = options;
        this.client = new Handle(Handle.Kind.CLIENT, client);
        free = new Semaphore(options.sessions);
    }

    /** A session out of the pool, or a new one. */
    SessionHandle session() {
        try {
            if (!free.tryAcquire() && !free.tryAcquire(PATIENCE_SECONDS, TimeUnit.SECONDS)) {
                throw KelixException.of(
                        ErrorKind.BUSY,
                        "all "
                                + options.sessions
                                + " sessions have been in use for "
                                + PATIENCE_SECONDS
                                + " s: close each after its use, or allow more by"
                                + " Options.sessions()",
                        true,
                        Effect.NO,
                        "session",
                        0);
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw KelixException.of(
                    ErrorKind.BUSY,
                    "the thread was interrupted while it waited for a session",
                    true,
                    Effect.NO,
                    "session",
                    0);
        }
        SessionHandle session = null;
        try {
            Core core = idle.pollFirst();
            session = new SessionHandle(core == null ? open() : core, this);
            inUse.add(session);
            // A thread that closes the pool may have looked before this session was there.
            if (isClosed) {
                session.run();
                throw closed();
            }
            return session;
        } finally {
            if (session == null) {
                free.release();
            }
        }
    }

    /** A new session of the library's. */
    Core open() {
        opening.lock();
        try {
            if (isClosed) {
                throw closed();
            }
            long taken = client.take();
            try {
                Block block = new Block(0);
                block.set(1, taken)
                        .set(2, options.fabric.ordinal())
                        .set(3, options.privateCaches ? 1 : 0);
                block.set(4, options.durable ? 1 : 0)
                        .set(5, options.timeout)
                        .set(6, options.retryFor);
                block.set(7, options.maxLag)
                        .set(8, options.ownWrites ? 0 : 1)
                        .set(9, options.strict ? 1 : 0);
                block.must(Op.OPEN_SESSION);
                return new Core(block.out(0));
            } finally {
                client.put(taken);
            }
        } finally {
            opening.unlock();
        }
    }

    private static KelixException closed() {
        return KelixException.invalid("the client was closed");
    }

    /** Takes a session back. */
    void take(SessionHandle session, Core core) {
        inUse.remove(session);
        idle.addFirst(core);
        if (isClosed && idle.remove(core)) {
            core.free();
        }
        free.release();
    }

    /** Ends a session. */
    void end(SessionHandle session, Core core) {
        inUse.remove(session);
        core.free();
        free.release();
    }

    boolean isClosed() {
        return isClosed;
    }

    /** Ends all sessions, each when no call is inside, and the client. */
    @Override
    public void run() {
        isClosed = true;
        inUse.forEach(Handle::run);
        for (Core core = idle.pollFirst(); core != null; core = idle.pollFirst()) {
            core.free();
        }
        opening.lock();
        try {
            client.run();
        } finally {
            opening.unlock();
        }
    }
}
