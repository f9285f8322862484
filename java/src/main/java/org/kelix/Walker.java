package org.kelix;

import java.lang.ref.Cleaner;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/**
 * A walk along links that is stepped. It is of the session that began it, which can do anything
 * else between, and ends with that one.
 */
public final class Walker implements AutoCloseable {
    private static final int ARRIVAL_BYTES = 24;

    private final Session session;
    private final Handle handle;
    private final Cleaner.Cleanable cleanable;

    Walker(Session session, long address) {
        this.session = session;
        handle = session.handle.child(Handle.Kind.WALK, address);
        cleanable = handle.with(this);
    }

    /**
     * The next items. Breadth-first they are read together; depth-first they come one at a time.
     * The walk goes on along the links of each, but for those that {@link #turnBack} names before
     * the next call.
     *
     * @param most how many at most, one at least
     * @return items; none: the walk is over. After an error the same call goes on where the walk
     *     was
     */
    public List<Arrival> next(int most) {
        if (most < 1) {
            throw KelixException.invalid("a step of " + most + " items: one is the least");
        }
        Core core = session.enter();
        try {
            long taken = handle.take();
            try (Items items = new Items(core.block, most, (long) most * ARRIVAL_BYTES, 1)) {
                Block block = core.block;
                int arrivals = block.take(most * ARRIVAL_BYTES);
                block.set(1, taken)
                        .set(2, items.address())
                        .set(3, block.addressOf(arrivals))
                        .set(4, most);
                if (block.must(Op.NEXT_OF_WALK) != 0) {
                    return List.of();
                }
                int count = (int) block.out(0);
                ByteBuffer data = block.data();
                List<Arrival> arrived = new ArrayList<>(count);
                for (int index = 0; index < count; index++) {
                    int at = arrivals + index * ARRIVAL_BYTES;
                    arrived.add(
                            new Arrival(
                                    items.item(index),
                                    data.getLong(at),
                                    data.getLong(at + 8),
                                    data.getInt(at + 16)));
                }
                return arrived;
            } finally {
                handle.put(taken);
            }
        } finally {
            session.leave();
        }
    }

    /**
     * Does not go along the links of an item of the last step.
     *
     * @param number the item's {@link Arrival#number()}
     */
    public void turnBack(long number) {
        call(number, Op.TURN_BACK, 0);
    }

    /**
     * Items visited so far.
     *
     * @return a number of items
     */
    public long items() {
        return call(0, Op.WALKED, 0);
    }

    /**
     * Links so far to items that do not exist (any more), and keys that are absent.
     *
     * @return a number of links and keys
     */
    public long gone() {
        return call(0, Op.WALKED, 1);
    }

    private long call(long number, Op op, int out) {
        Block block = session.enter().block;
        try {
            long taken = handle.take();
            try {
                block.set(1, taken).set(2, number).must(op);
                return block.out(out);
            } finally {
                handle.put(taken);
            }
        } finally {
            session.leave();
        }
    }

    /** Ends the walk. */
    @Override
    public void close() {
        cleanable.clean();
    }
}
