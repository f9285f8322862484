package org.kelix;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;

/**
 * An item to be put: a value, attributes, links, flags, an end. It can be put as often as one
 * likes.
 */
public final class NewItem {
    private static final int ATTRIBUTE_BYTES = 80;

    private record Entry(byte[] name, byte[] bytes, Table table, byte[] key) {}

    private final List<Entry> entries = new ArrayList<>();
    private final PutOptions options = new PutOptions();

    /** An item without attributes. */
    public NewItem() {}

    /**
     * Sets the plain value, which is the attribute without a name.
     *
     * @param value the value
     * @return this
     */
    public NewItem value(byte[] value) {
        return bytes("", value);
    }

    /**
     * Adds bytes under a name.
     *
     * @param name the name
     * @param bytes the bytes
     * @return this
     */
    public NewItem bytes(String name, byte[] bytes) {
        entries.add(
                new Entry(
                        Block.name(name, "name of an attribute"),
                        Block.need(bytes, "attribute").clone(),
                        null,
                        null));
        return this;
    }

    /**
     * Adds a link under a name. Several links under one name make a list. The target need not exist
     * yet.
     *
     * @param name the name
     * @param table the table of the target
     * @param key the key of the target
     * @return this
     */
    public NewItem link(String name, Table table, byte[] key) {
        return link(name, table, key, new byte[0]);
    }

    /**
     * Adds a link with bytes of its own.
     *
     * @param name the name
     * @param table the table of the target
     * @param key the key of the target
     * @param bytes the link's own bytes
     * @return this
     */
    public NewItem link(String name, Table table, byte[] key, byte[] bytes) {
        entries.add(
                new Entry(
                        Block.name(name, "name of a link"),
                        Block.need(bytes, "link's bytes").clone(),
                        Block.need(table, "table"),
                        Block.need(key, "key").clone()));
        return this;
    }

    /**
     * Sets the item's flags, which mean nothing to the store.
     *
     * @param flags 32 bits
     * @return this
     */
    public NewItem flags(int flags) {
        options.flags(flags);
        return this;
    }

    /**
     * How long after the write the item ends, by the server's clock.
     *
     * @param time more than nothing
     * @return this
     */
    public NewItem endsIn(Duration time) {
        options.endsIn(time);
        return this;
    }

    /**
     * When the item ends, by the server's clock.
     *
     * @param time after 1970
     * @return this
     */
    public NewItem endsAt(Instant time) {
        options.endsAt(time);
        return this;
    }

    /** How many bytes it takes in a block. */
    long bytes() {
        long bytes = (long) entries.size() * ATTRIBUTE_BYTES;
        for (Entry entry : entries) {
            bytes +=
                    entry.name.length
                            + entry.bytes.length
                            + (entry.key == null ? 0 : entry.key.length);
        }
        return bytes;
    }

    /** How many byte strings it takes there. */
    int strings() {
        return 3 * entries.size() + 1;
    }

    /** Writes it into a block: five words from this one on. */
    void write(Block block, int at) {
        int start = block.take(entries.size() * ATTRIBUTE_BYTES);
        block.set(at, block.addressOf(start)).set(at + 1, entries.size());
        block.set(at + 2, options.flags & 0xffffffffL)
                .set(at + 3, options.endsIn)
                .set(at + 4, options.endsAt);
        ByteBuffer data = block.data();
        for (Entry entry : entries) {
            data.putLong(start, entry.table == null ? 0 : 1);
            block.string(start + 8, entry.name);
            block.string(start + 24, entry.bytes);
            if (entry.table != null) {
                data.putLong(start + 40, entry.table.word0);
                data.putLong(start + 48, entry.table.word1);
                data.putLong(start + 56, entry.table.word2);
                block.string(start + 64, entry.key);
            }
            start += ATTRIBUTE_BYTES;
        }
    }
}
