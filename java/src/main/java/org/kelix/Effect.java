package org.kelix;

/** Whether an operation that failed has changed the store. */
public enum Effect {
    /** It has not. */
    NO,
    /** It has. */
    YES,
    /** It may have: the request may have been delivered, and no answer came. */
    UNKNOWN;

    static Effect of(int code) {
        return code >= 0 && code < values().length ? values()[code] : UNKNOWN;
    }
}
