package org.kelix;

import java.util.List;

/**
 * A submitted operation that has ended.
 *
 * @param number the number that the caller gave it
 * @param kind what it was, or {@link Kind#FAILED}
 * @param done of a delete: whether the key was there. Of a write of an expected version: whether it
 *     was done. Of a get: whether there is such a key. Otherwise true, and false of what failed
 * @param version of a get: the item's version. Of a put: the new one. Of a write of an expected
 *     version: the new one, or that which the key has. Otherwise 0
 * @param items the items that it brought: of a get one or none, of a page any number
 * @param rest of a page: the rest of the scan, or null if that was the last page
 * @param error of what failed: the error. Otherwise null
 */
public record Completion(
        long number,
        Kind kind,
        boolean done,
        long version,
        List<Item> items,
        Cursor rest,
        KelixException error) {
    /** Kinds of operations. */
    public enum Kind {
        /** The operation failed. */
        FAILED,
        /** A get. */
        GOT,
        /** A put. */
        WRITTEN,
        /** A delete. */
        DELETED,
        /** A write of an expected version. */
        COMPARED,
        /** A page of a scan. */
        PAGE
    }

    /**
     * The value that a get brought.
     *
     * @return a copy, or null: there is none
     */
    public byte[] value() {
        return kind == Kind.GOT && !items.isEmpty() ? items.get(0).value() : null;
    }
}
