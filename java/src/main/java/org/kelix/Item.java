package org.kelix;

import java.lang.ref.Cleaner;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/**
 * A private, consistent copy of one version of an item. It can be read by any number of threads.
 *
 * <p>An item with links holds some native memory, by which {@link Session#follow} goes along them.
 * To close it frees that at once; otherwise it goes when the item cannot be reached any more. What
 * was read of a closed item stays.
 */
public final class Item implements AutoCloseable {
    private static final int ATTRIBUTE_BYTES = 56;

    private final byte[] key;
    private final int tableId;
    private final long version;
    private final long ends;
    private final int flags;
    private final List<Attribute> attributes;

    /** Null of an item without links. */
    private final Handle handle;

    private final Cleaner.Cleanable cleanable;

    /**
     * The item that a call told, and whose memory becomes this one's if there are links in it:
     * {@link #hasHandle}.
     */
    Item(Block told, long address) {
        key = told.toldBytes(0);
        version = told.out(2);
        ends = told.out(3);
        flags = (int) told.out(4);
        tableId = (int) told.out(5);
        attributes = attributes(told.out(6), told.out(7));
        boolean links = attributes.stream().anyMatch(Attribute::isLink);
        handle = links ? new Handle(Handle.Kind.ITEM, address) : null;
        cleanable = links ? handle.with(this) : null;
    }

    private static List<Attribute> attributes(long address, long count) {
        List<Attribute> attributes = new ArrayList<>((int) count);
        ByteBuffer memory = count == 0 ? null : Block.memory(address, count * ATTRIBUTE_BYTES);
        for (int at = 0; at < count * ATTRIBUTE_BYTES; at += ATTRIBUTE_BYTES) {
            byte[] name = Block.copy(memory.getLong(at), memory.getLong(at + 8));
            byte[] bytes = Block.copy(memory.getLong(at + 16), memory.getLong(at + 24));
            boolean isLink = memory.getInt(at + 48) != 0;
            attributes.add(
                    new Attribute(
                            name.length == 0 ? "" : new String(name, StandardCharsets.UTF_8),
                            bytes,
                            isLink
                                    ? Block.copy(memory.getLong(at + 32), memory.getLong(at + 40))
                                    : null,
                            isLink ? memory.getShort(at + 52) & 0xffff : -1));
        }
        return attributes;
    }

    boolean hasHandle() {
        return handle != null;
    }

    Handle handle() {
        return handle;
    }

    /**
     * Its key.
     *
     * @return a copy
     */
    public byte[] key() {
        return key.clone();
    }

    /**
     * Its value; of an item with attributes, that without a name, which is empty if there is none.
     *
     * @return a copy
     */
    public byte[] value() {
        return bytes("").orElseGet(() -> new byte[0]);
    }

    /**
     * The number of its table.
     *
     * @return the number, as {@link Table#id()}
     */
    public int tableId() {
        return tableId;
    }

    /**
     * Its version, for {@link Session#compareAndSet}.
     *
     * @return the version
     */
    public long version() {
        return version;
    }

    /**
     * The flags that whoever put it gave it.
     *
     * @return 32 bits
     */
    public int flags() {
        return flags;
    }

    /**
     * When it ends.
     *
     * @return nothing if it does not
     */
    public Optional<Instant> endsAt() {
        return Optional.ofNullable(Times.end(ends));
    }

    /**
     * Its attributes, in order. A plain item has one, without a name.
     *
     * @return a new list, whose arrays are this item's: they are not to be written
     */
    public List<Attribute> attributes() {
        return List.copyOf(attributes);
    }

    /**
     * The first attribute of a name that is bytes.
     *
     * @param name the name; the empty one is the value's
     * @return a copy, or nothing
     */
    public Optional<byte[]> bytes(String name) {
        Block.need(name, "name");
        for (Attribute attribute : attributes) {
            if (!attribute.isLink() && attribute.name().equals(name)) {
                return Optional.of(attribute.bytes().clone());
            }
        }
        return Optional.empty();
    }

    /**
     * The links under a name, in order.
     *
     * @param name the name
     * @return a new list, which may be empty
     */
    public List<Attribute> links(String name) {
        Block.need(name, "name");
        return attributes.stream()
                .filter(each -> each.isLink() && each.name().equals(name))
                .toList();
    }

    /** Frees the native memory that it may hold. It cannot be followed any more. */
    @Override
    public void close() {
        if (cleanable != null) {
            cleanable.clean();
        }
    }
}
