package org.kelix;

/**
 * What came of a write of an expected version.
 *
 * @param done whether the key had that version, and it was written
 * @param version if done, the new version ({@link Session#ABSENT} after a delete); otherwise that
 *     which the key has, {@link Session#ABSENT} if there is no such key
 */
public record Compared(boolean done, long version) {
    static Compared of(int code, long version) {
        return switch (code) {
            case 0 -> new Compared(true, version);
            case 2 -> new Compared(false, version);
            default -> new Compared(false, Session.ABSENT);
        };
    }
}
