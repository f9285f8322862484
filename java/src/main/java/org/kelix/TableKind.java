package org.kelix;

/** Kinds of tables. */
public enum TableKind {
    /** Items by key, without order. */
    HASH,
    /** Numbers in order, each with a value of 8 bytes. Keys are those of {@link Keys#of(long)}. */
    INLINE,
    /** Numbers in order, each with an item. Keys are those of {@link Keys#of(long)}. */
    NUMBERS,
    /** Byte strings in order, each with an item. */
    STRINGS;

    /**
     * Whether its keys have an order, so that ranges of them can be scanned.
     *
     * @return false of {@link #HASH} only
     */
    public boolean isOrdered() {
        return this != HASH;
    }

    /**
     * Whether its keys are numbers, of 8 bytes.
     *
     * @return true of {@link #INLINE} and {@link #NUMBERS}
     */
    public boolean hasNumbers() {
        return this == INLINE || this == NUMBERS;
    }
}
