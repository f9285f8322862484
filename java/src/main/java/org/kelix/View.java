package org.kelix;

import java.lang.ref.Cleaner;

/**
 * The tables of a loaded dataset, all of one generation, which stays what it is for as long as the
 * view is open and its session is used now and then. Its tables are read by the session that opened
 * it.
 */
public final class View implements AutoCloseable {
    private final Session session;
    private final Handle handle;
    private final Cleaner.Cleanable cleanable;
    private final long generation;

    View(Session session, long address, long generation) {
        this.session = session;
        this.generation = generation;
        handle = session.handle.child(Handle.Kind.VIEW, address);
        cleanable = handle.with(this);
    }

    /**
     * A table of the generation. Reads fail with {@link ErrorKind#VIEW_EXPIRED} when it is gone.
     *
     * @param name its name
     * @return the table
     * @throws NoSuchTableException the generation has none of this name
     */
    public Table table(String name) {
        byte[] bytes = Block.name(name, "name of a table");
        Block block = session.enter().block;
        try {
            long taken = handle.take();
            try {
                block.begin(bytes.length, 1).bytes(1, bytes).set(3, taken).must(Op.VIEW_TABLE);
                return new Table(block, name);
            } finally {
                handle.put(taken);
            }
        } finally {
            session.leave();
        }
    }

    /**
     * The number of the generation.
     *
     * @return the number
     */
    public long generation() {
        return generation;
    }

    /** Lets the generation go. */
    @Override
    public void close() {
        cleanable.clean();
    }
}
