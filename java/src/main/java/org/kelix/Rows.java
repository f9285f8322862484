package org.kelix;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Instant;
import java.util.Arrays;
import java.util.Optional;

/**
 * Keys and values of a scan, in order, in a few arrays of this process. They can be read by any
 * number of threads.
 */
public final class Rows {
    private static final int ENTRY_BYTES = 56;
    private static final int PAIR_BYTES = 16;
    private static final int CELL_BYTES = 16;

    private final int size;
    private final byte[] data;

    /**
     * Null of a table of the kind {@link TableKind#INLINE}, whose data are keys and values of 8
     * bytes.
     */
    private final ByteBuffer entries;

    /** Where attributes stand in the data, row by row. */
    private final ByteBuffer cells;

    private final int columns;

    static final Rows NONE = new Rows();

    private Rows() {
        size = 0;
        columns = 0;
        data = new byte[0];
        entries = null;
        cells = null;
    }

    /** The rows that a call told, with so many attributes of each. */
    Rows(Block told, int columns) {
        this.columns = columns;
        cells =
                ByteBuffer.wrap(Block.copy(told.out(5), told.out(6) * CELL_BYTES))
                        .order(ByteOrder.nativeOrder());
        long count = told.out(4);
        size = (int) count;
        if (count == 0) {
            data = new byte[0];
            entries = null;
        } else if (told.out(2) == 0) {
            data = Block.copy(told.out(3), count * PAIR_BYTES);
            entries = null;
        } else {
            data = told.toldBytes(0);
            byte[] copied = Block.copy(told.out(2), count * ENTRY_BYTES);
            entries = ByteBuffer.wrap(copied).order(ByteOrder.nativeOrder());
        }
    }

    /**
     * How many they are.
     *
     * @return a number of rows
     */
    public int size() {
        return size;
    }

    /**
     * Whether there are none.
     *
     * @return whether there are none
     */
    public boolean isEmpty() {
        return size == 0;
    }

    /**
     * The key of a row.
     *
     * @param row from 0 to {@link #size()} - 1
     * @return a copy
     */
    public byte[] key(int row) {
        int at = check(row);
        return entries == null ? pair(row, 0) : part(entries.getLong(at), entries.getLong(at + 8));
    }

    /**
     * The value of a row; of an item with attributes, that without a name.
     *
     * @param row from 0 to {@link #size()} - 1
     * @return a copy
     */
    public byte[] value(int row) {
        int at = check(row);
        return entries == null
                ? pair(row, 8)
                : part(entries.getLong(at + 16), entries.getLong(at + 24));
    }

    /**
     * The version of a row's item.
     *
     * @param row from 0 to {@link #size()} - 1
     * @return the version; 0 in a table of the kind {@link TableKind#INLINE}
     */
    public long version(int row) {
        int at = check(row);
        return entries == null ? 0 : entries.getLong(at + 32);
    }

    /**
     * When a row's item ends.
     *
     * @param row from 0 to {@link #size()} - 1
     * @return nothing if it does not
     */
    public Optional<Instant> endsAt(int row) {
        int at = check(row);
        return Optional.ofNullable(Times.end(entries == null ? 0 : entries.getLong(at + 40)));
    }

    /**
     * The flags of a row's item.
     *
     * @param row from 0 to {@link #size()} - 1
     * @return 32 bits
     */
    public int flags(int row) {
        int at = check(row);
        return entries == null ? 0 : entries.getInt(at + 48);
    }

    /**
     * An attribute of a row's item.
     *
     * @param row from 0 to {@link #size()} - 1
     * @param column which of the attributes that the scan was asked for, from 0 on
     * @return a copy, or nothing: the item has no such attribute that is bytes
     */
    public Optional<byte[]> attribute(int row, int column) {
        check(row);
        if (column < 0 || column >= columns) {
            throw KelixException.invalid("there is no column " + column + " of " + columns);
        }
        int at = (row * columns + column) * CELL_BYTES;
        long start = cells.getLong(at);
        return start == -1 ? Optional.empty() : Optional.of(part(start, cells.getLong(at + 8)));
    }

    private int check(int row) {
        if (row < 0 || row >= size) {
            throw KelixException.invalid("there is no row " + row + " of " + size);
        }
        return row * ENTRY_BYTES;
    }

    private byte[] pair(int row, int at) {
        int start = row * PAIR_BYTES + at;
        return Arrays.copyOfRange(data, start, start + 8);
    }

    private byte[] part(long start, long bytes) {
        return Arrays.copyOfRange(data, (int) start, (int) (start + bytes));
    }
}
