package org.kelix;

/**
 * A table of a generation that is to be built.
 *
 * @param name its name
 * @param kind its kind
 * @param overlay whether clients may write to it once it is in force
 */
public record NewTable(String name, TableKind kind, boolean overlay) {
    /**
     * A table that clients only read.
     *
     * @param name its name
     * @param kind its kind
     */
    public NewTable(String name, TableKind kind) {
        this(name, kind, false);
    }
}
