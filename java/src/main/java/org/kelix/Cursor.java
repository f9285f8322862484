package org.kelix;

import java.lang.ref.Cleaner;
import java.util.List;

/**
 * A scan that goes on page by page, or item by item. It is of the session that opened it, which can
 * do anything else between, and ends with that one.
 */
public final class Cursor implements AutoCloseable {
    private final Session session;
    private final List<byte[]> attributes;
    private final Handle handle;
    private final Cleaner.Cleanable cleanable;
    private boolean isOver;

    Cursor(Session session, long address, List<byte[]> attributes) {
        this.session = session;
        this.attributes = attributes;
        handle = session.handle.child(Handle.Kind.SCAN, address);
        cleanable = handle.with(this);
    }

    Handle handle() {
        return handle;
    }

    /** Whether the last page was the last one. */
    boolean isOver() {
        return isOver;
    }

    /**
     * The next keys and their values.
     *
     * @param most how many at most, one at least
     * @return rows; none: the scan is over. After an error the same call goes on from where the
     *     scan stood
     */
    public Rows next(int most) {
        if (most < 1) {
            throw KelixException.invalid("a page of " + most + " rows: one is the least");
        }
        Core core = session.enter();
        try {
            long taken = handle.take();
            try {
                long rows = session.rows(attributes);
                // A page may be empty, and yet not the last one.
                Rows page = Rows.NONE;
                while (page.isEmpty() && !isOver) {
                    core.block.set(1, taken).set(2, rows).set(3, most);
                    isOver = core.block.must(Op.NEXT_ROWS) == 0;
                    page = new Rows(core.block, attributes.size());
                }
                return page;
            } finally {
                handle.put(taken);
            }
        } finally {
            session.leave();
        }
    }

    /**
     * The next item, with its attributes, links, flags and end.
     *
     * @return the item; null: the scan is over. An error ends the scan
     */
    public Item nextItem() {
        Core core = session.enter();
        try {
            long taken = handle.take();
            try {
                core.block.set(2, core.spare(Handle.Kind.ITEM)).set(1, taken);
                return core.block.must(Op.NEXT_ITEM) == 0 ? core.item() : null;
            } finally {
                handle.put(taken);
            }
        } finally {
            session.leave();
        }
    }

    /** Ends the scan. */
    @Override
    public void close() {
        cleanable.clean();
    }
}
