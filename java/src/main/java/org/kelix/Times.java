package org.kelix;

import java.time.Duration;
import java.time.Instant;

/** Times as the library has them: nanoseconds, of which 0 says that there is none. */
final class Times {
    private Times() {}

    static long positive(Duration time, String what) {
        Block.need(time, what);
        if (time.isNegative() || time.isZero()) {
            throw KelixException.invalid(
                    "the " + what + " is " + time + " and has to be more than nothing");
        }
        return nanoseconds(time, what);
    }

    static long since1970(Instant time) {
        Block.need(time, "end of an item");
        Duration since = Duration.between(Instant.EPOCH, time);
        return positive(since, "end of an item after 1970");
    }

    private static long nanoseconds(Duration time, String what) {
        try {
            return time.toNanos();
        } catch (ArithmeticException error) {
            throw KelixException.invalid(
                    "the " + what + " is " + time + ": 292 years are the most");
        }
    }

    /** A time to wait, which may be so long that nobody sees its end. */
    static long atMost(Duration time) {
        return time.compareTo(Duration.ofDays(10_000)) > 0 ? Long.MAX_VALUE / 4 : time.toNanos();
    }

    /** The end of an item, or null. */
    static Instant end(long nanoseconds) {
        return nanoseconds == 0
                ? null
                : Instant.ofEpochSecond(
                        Long.divideUnsigned(nanoseconds, 1_000_000_000),
                        Long.remainderUnsigned(nanoseconds, 1_000_000_000));
    }
}
