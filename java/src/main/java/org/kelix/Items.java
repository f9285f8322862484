package org.kelix;

/** Room for several items of one call, freed with it but for what {@link #item} made items of. */
final class Items implements AutoCloseable {
    private final Block block;
    private final int count;
    private final int at;

    /** Begins a call that passes so many items, and further bytes and byte strings beside. */
    Items(Block block, int count, long bytes, int strings) {
        this.block = block;
        this.count = count;
        block.begin(8L * count + bytes, strings + 1);
        at = block.take(8 * count);
        block.set(1, address()).set(2, count);
        int code = block.call(Op.NEW_ITEMS);
        if (code < 0) {
            KelixException error = block.error(code);
            close();
            throw error;
        }
    }

    long address() {
        return block.addressOf(at);
    }

    /** The item at an index, which a call has filled. */
    Item item(int index) {
        long address = block.data().getLong(at + 8 * index);
        block.set(1, address).must(Op.ITEM_ABOUT);
        Item item = new Item(block, address);
        if (item.hasHandle()) {
            block.data().putLong(at + 8 * index, 0);
        }
        return item;
    }

    @Override
    public void close() {
        block.set(1, address()).set(2, count).must(Op.FREE_ITEMS);
    }
}
