package org.kelix;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** A session in use, with the scans, walks, views and builds that it has opened. */
final class SessionHandle extends Handle {
    final Core core;
    private final Pool pool;
    private final Set<Handle> children = ConcurrentHashMap.newKeySet();

    /** Builds that are not over: the library gives them up when their session ends. */
    private final Set<Handle> builds = ConcurrentHashMap.newKeySet();

    /**
     * Whether the session has to end, as what it was made to do would surprise the next one who
     * gets it.
     */
    boolean isSpent;

    SessionHandle(Core core, Pool pool) {
        super(Kind.SESSION, core.address);
        this.core = core;
        this.pool = pool;
    }

    /** A handle that ends with this session at the latest. */
    Handle child(Kind kind, long address) {
        Handle child =
                new Handle(kind, address) {
                    @Override
                    void free(long taken) {
                        children.remove(this);
                        super.free(taken);
                    }
                };
        children.add(child);
        if (kind == Kind.BUILD) {
            builds.add(child);
        }
        return child;
    }

    void isOver(Handle build) {
        builds.remove(build);
    }

    boolean isBuilding(Handle build) {
        return builds.contains(build);
    }

    @Override
    void free(long taken) {
        children.forEach(Handle::run);
        core.forgetBuffers();
        boolean canGoOn = !isSpent && builds.isEmpty() && core.block.trim();
        if (canGoOn && core.block.call(Op.OUTSTANDING) == 0 && core.block.out(0) == 0) {
            pool.take(this, core);
        } else {
            pool.end(this, core);
        }
    }
}
