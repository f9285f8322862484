package org.kelix;

/** There is no such table or dataset. */
public final class NoSuchTableException extends KelixException {
    private static final long serialVersionUID = 1;

    NoSuchTableException(
            ErrorKind kind,
            String message,
            boolean retry,
            Effect effect,
            String operation,
            long neededBytes) {
        super(kind, message, retry, effect, operation, neededBytes);
    }
}
