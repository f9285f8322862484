package org.kelix;

/**
 * Which keys of a table, and in which order: all of them upwards, unless something else is said. A
 * hash table has no order, so of it only all keys, or the first so many, can be had.
 */
public final class Scan {
    private static final byte[] NONE = new byte[0];

    /** How many words and byte strings it takes in a block. */
    static final int STRINGS = 3;

    private byte[] prefix = NONE;
    private byte[] start = NONE;
    private byte[] stop = NONE;
    private long first;
    private long last;
    private long limit;
    private boolean isOfNumbers;
    private boolean isBackwards;

    private Scan() {}

    /**
     * All keys.
     *
     * @return a new scan
     */
    public static Scan all() {
        return new Scan();
    }

    /**
     * Keys that begin with these bytes.
     *
     * @param prefix the bytes
     * @return a new scan
     */
    public static Scan prefix(byte[] prefix) {
        Scan scan = new Scan();
        scan.prefix = Block.need(prefix, "prefix").clone();
        return scan;
    }

    /**
     * Numbers from the first to the last one, both in it, of a table whose keys are numbers. They
     * have no sign.
     *
     * @param first the first number
     * @param last the last one
     * @return a new scan
     */
    public static Scan numbers(long first, long last) {
        Scan scan = new Scan();
        scan.first = first;
        scan.last = last;
        scan.isOfNumbers = true;
        return scan;
    }

    /**
     * From this key on. Empty: from the first one.
     *
     * @param key the key
     * @return this
     */
    public Scan from(byte[] key) {
        start = Block.need(key, "first key").clone();
        return this;
    }

    /**
     * Up to this key, which is not in the range. Empty: up to the last one.
     *
     * @param key the key
     * @return this
     */
    public Scan to(byte[] key) {
        stop = Block.need(key, "last key").clone();
        return this;
    }

    /**
     * From the greatest key downwards.
     *
     * @return this
     */
    public Scan backwards() {
        isBackwards = true;
        return this;
    }

    /**
     * No more keys than this.
     *
     * @param most one at least
     * @return this
     */
    public Scan limit(long most) {
        if (most < 1) {
            throw KelixException.invalid("the limit of a scan is " + most + ": one is the least");
        }
        limit = most;
        return this;
    }

    long bytes() {
        return (long) prefix.length + start.length + stop.length;
    }

    /** Writes it into a block: twelve words from this one on. */
    void write(Block block, int at) {
        block.bytes(at, prefix).bytes(at + 2, start).bytes(at + 4, stop);
        block.set(at + 6, first).set(at + 7, last).set(at + 8, limit);
        block.set(at + 9, isOfNumbers ? 1 : 0).set(at + 10, isBackwards ? 1 : 0).set(at + 11, 1);
    }
}
