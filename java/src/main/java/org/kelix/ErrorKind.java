package org.kelix;

/** What went wrong. */
public enum ErrorKind {
    /**
     * An argument breaks a documented limit or makes no sense, or something was used after it was
     * closed. Nothing was sent.
     */
    INVALID_ARGUMENT(-1),
    /** The table or dataset does not exist. */
    NO_SUCH_TABLE(-2),
    /** The item has no such attribute or link. */
    NO_SUCH_ATTRIBUTE(-3),
    /** The caller's memory is smaller than the value: {@link KelixException#neededBytes()}. */
    BUFFER_TOO_SMALL(-4),
    /** The store has no room, and none comes back by waiting. */
    OUT_OF_MEMORY(-5),
    /** No server answers, or it has gone. */
    UNAVAILABLE(-6),
    /** The server did not answer in time. */
    TIMED_OUT(-7),
    /**
     * Another server has taken over. A session connects to it with its next call, unless there is
     * no use in trying again.
     */
    SUPERSEDED(-8),
    /** The generation of a loaded table that was being read is not there any more. */
    VIEW_EXPIRED(-9),
    /**
     * A loaded table takes no writes for a moment, because its next generation is about to come
     * into force.
     */
    FROZEN(-10),
    /** The other side, or a file, is of another version, byte order or layout. */
    INCOMPATIBLE(-11),
    /** A file is not what was written. */
    DAMAGED(-12),
    /** The other side broke the protocol. */
    PROTOCOL_ERROR(-13),
    /** The server does not let this client do that. */
    DENIED(-14),
    /** The system refused: permission, descriptors, memory. */
    SYSTEM_ERROR(-15),
    /** The session is of another process, which forked this one. */
    FORKED(-16),
    /** Another call is using the session or the other object. Nothing was done. */
    BUSY(-100),
    /** A fault in the library. The operation may have had an effect; the session can be used on. */
    INTERNAL(-101);

    private final int code;

    ErrorKind(int code) {
        this.code = code;
    }

    /** Its name as all languages have it, as "no such table". */
    @Override
    public String toString() {
        return name().toLowerCase(java.util.Locale.ROOT).replace('_', ' ');
    }

    static ErrorKind of(int code) {
        for (ErrorKind kind : values()) {
            if (kind.code == code) {
                return kind;
            }
        }
        return INTERNAL;
    }
}
