package org.kelix;

/**
 * An operation failed. {@link #kind()} tells how; the kinds that programs often catch have classes
 * of their own.
 */
public class KelixException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** What went wrong. */
    private final ErrorKind kind;

    /** Whether the same call may succeed later. */
    private final boolean retry;

    /** Whether the store was changed. */
    private final Effect effect;

    /** The operation that failed. */
    private final String operation;

    /** How many bytes it takes, or 0. */
    private final long neededBytes;

    KelixException(
            ErrorKind kind,
            String message,
            boolean retry,
            Effect effect,
            String operation,
            long neededBytes) {
        super(message);
        this.kind = kind;
        this.retry = retry;
        this.effect = effect;
        this.operation = operation;
        this.neededBytes = neededBytes;
    }

    static KelixException of(
            ErrorKind kind,
            String message,
            boolean retry,
            Effect effect,
            String operation,
            long neededBytes) {
        String words = message.isEmpty() ? kind.toString() : message;
        return switch (kind) {
            case NO_SUCH_TABLE ->
                    new NoSuchTableException(kind, words, retry, effect, operation, neededBytes);
            case UNAVAILABLE, TIMED_OUT, SUPERSEDED ->
                    new UnavailableException(kind, words, retry, effect, operation, neededBytes);
            default -> new KelixException(kind, words, retry, effect, operation, neededBytes);
        };
    }

    static KelixException invalid(String message) {
        return of(ErrorKind.INVALID_ARGUMENT, message, false, Effect.NO, "", 0);
    }

    /**
     * What went wrong.
     *
     * @return the kind
     */
    public final ErrorKind kind() {
        return kind;
    }

    /**
     * Whether the same call may succeed later. A write whose {@link #effect()} is unknown is for
     * the caller to judge.
     *
     * @return whether trying again makes sense
     */
    public final boolean retry() {
        return retry;
    }

    /**
     * Whether the store was changed.
     *
     * @return the effect
     */
    public final Effect effect() {
        return effect;
    }

    /**
     * The operation that failed; empty where nothing was begun.
     *
     * @return its name
     */
    public final String operation() {
        return operation;
    }

    /**
     * Of {@link ErrorKind#BUFFER_TOO_SMALL}: how many bytes it takes. Otherwise 0.
     *
     * @return a number of bytes
     */
    public final long neededBytes() {
        return neededBytes;
    }
}
