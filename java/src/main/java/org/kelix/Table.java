package org.kelix;

/**
 * A table of a server. It serves all sessions with that server, and is refused by sessions with
 * others; that of a view or a build serves the session that opened it. It needs no end.
 */
public final class Table {
    final long word0;
    final long word1;
    final long word2;
    private final String name;
    private final int id;
    private final TableKind kind;

    /** The table that a call told. */
    Table(Block told, String name) {
        word0 = told.out(0);
        word1 = told.out(1);
        word2 = told.out(2);
        this.name = name;
        id = (int) told.out(3);
        kind = TableKind.values()[(int) told.out(4)];
    }

    /**
     * The name by which it was opened; empty for one that was found by its number.
     *
     * @return the name
     */
    public String name() {
        return name;
    }

    /**
     * Its number, as items and links tell it.
     *
     * @return the number, from 0 to 65,535
     */
    public int id() {
        return id;
    }

    /**
     * Its kind.
     *
     * @return the kind
     */
    public TableKind kind() {
        return kind;
    }

    @Override
    public String toString() {
        return "Table " + (name.isEmpty() ? "number " + id : name) + " (" + kind + ")";
    }
}
