package org.kelix;

/**
 * An attribute of an item: bytes, or a link to another item.
 *
 * @param name its name; that of a plain value is empty
 * @param bytes its bytes; of a link its own, which may be none
 * @param key of a link: the key of its target. Otherwise null
 * @param tableId of a link: the number of its target's table. Otherwise -1
 */
public record Attribute(String name, byte[] bytes, byte[] key, int tableId) {
    /**
     * Whether it is a link.
     *
     * @return whether it has a target
     */
    public boolean isLink() {
        return key != null;
    }
}
