package org.kelix;

/**
 * No server answers, or not in time, or another one has taken over: {@link ErrorKind#UNAVAILABLE},
 * {@link ErrorKind#TIMED_OUT} or {@link ErrorKind#SUPERSEDED}. A write may have been done: {@link
 * #effect()}.
 */
public final class UnavailableException extends KelixException {
    private static final long serialVersionUID = 1;

    UnavailableException(
            ErrorKind kind,
            String message,
            boolean retry,
            Effect effect,
            String operation,
            long neededBytes) {
        super(kind, message, retry, effect, operation, neededBytes);
    }
}
