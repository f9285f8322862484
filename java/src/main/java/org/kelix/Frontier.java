package org.kelix;

import java.lang.ref.Cleaner;

/**
 * Where to go next: links out of any number of items, and keys. {@link Session#visit} reads all
 * targets together. It is read by any session with the server that its tables and items are of, and
 * serves one call at a time.
 */
public final class Frontier implements AutoCloseable {
    private final Block block = new Block(1 << 10);
    private final Handle handle;
    private final Cleaner.Cleanable cleanable;
    private int size;

    /** A frontier without targets. */
    public Frontier() {
        Library.version();
        block.must(Op.NEW_FRONTIER);
        handle = new Handle(Handle.Kind.FRONTIER, block.out(0));
        cleanable = handle.with(this);
    }

    Handle handle() {
        return handle;
    }

    /**
     * Adds an item by its key.
     *
     * @param table its table
     * @param key its key
     * @return this
     */
    public Frontier add(Table table, byte[] key) {
        Block.need(table, "table");
        Block.need(key, "key");
        long taken = handle.take();
        try {
            block.begin(key.length, 1)
                    .set(1, taken)
                    .table(2, table)
                    .bytes(5, key)
                    .must(Op.ADD_TO_FRONTIER);
            size++;
            return this;
        } finally {
            handle.put(taken);
        }
    }

    /**
     * Adds the targets of an item's links under a name, in order.
     *
     * @param item the item
     * @param name the name
     * @return how many that are
     */
    public int addLinks(Item item, String name) {
        byte[] bytes = Block.name(name, "name of a link");
        if (!Block.need(item, "item").hasHandle()) {
            return 0;
        }
        long taken = handle.take();
        try {
            long of = item.handle().take();
            try {
                block.begin(bytes.length, 1)
                        .set(1, taken)
                        .set(2, of)
                        .bytes(3, bytes)
                        .must(Op.ADD_LINKS);
            } finally {
                item.handle().put(of);
            }
            size += (int) block.out(0);
            return (int) block.out(0);
        } finally {
            handle.put(taken);
        }
    }

    /** Takes all targets out. */
    public void clear() {
        long taken = handle.take();
        try {
            block.set(1, taken).must(Op.CLEAR_FRONTIER);
            size = 0;
        } finally {
            handle.put(taken);
        }
    }

    /**
     * How many targets it has.
     *
     * @return a number of targets
     */
    public int size() {
        return size;
    }

    /** Frees its memory. */
    @Override
    public void close() {
        cleanable.clean();
    }
}
