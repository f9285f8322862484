package org.kelix;

import java.time.Duration;
import java.time.Instant;

/** How to put a value: with flags, with an end, and only if the key is as expected. */
public final class PutOptions {
    int flags;
    int expect;
    long expected;
    long endsIn;
    long endsAt;

    /** Puts whatever version the key has, without flags and without an end. */
    public PutOptions() {}

    /**
     * What the item's flags become. They mean nothing to the store.
     *
     * @param flags 32 bits
     * @return this
     */
    public PutOptions flags(int flags) {
        this.flags = flags;
        return this;
    }

    /**
     * How long after the write the item ends, by the server's clock. It replaces an end that was
     * set before.
     *
     * @param time more than nothing
     * @return this
     * @throws KelixException {@link ErrorKind#INVALID_ARGUMENT}: the time is not positive, or
     *     longer than 292 years
     */
    public PutOptions endsIn(Duration time) {
        endsIn = Times.positive(time, "time to an item's end");
        endsAt = 0;
        return this;
    }

    /**
     * When the item ends, by the server's clock: at once if that is over. It replaces an end that
     * was set before.
     *
     * @param time after 1970
     * @return this
     * @throws KelixException {@link ErrorKind#INVALID_ARGUMENT}: the time is before 1970, or after
     *     2262
     */
    public PutOptions endsAt(Instant time) {
        endsAt = Times.since1970(time);
        endsIn = 0;
        return this;
    }

    /**
     * Puts only if the key has this version; {@link Session#ABSENT}: only if it is absent.
     *
     * @param version the version
     * @return this
     */
    public PutOptions expected(long version) {
        expect = version == Session.ABSENT ? 1 : 2;
        expected = version;
        return this;
    }
}
