package org.kelix.test;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import org.junit.function.ThrowingRunnable;
import org.kelix.ErrorKind;
import org.kelix.KelixException;

import java.nio.charset.StandardCharsets;
import java.util.concurrent.Callable;
import java.util.function.BooleanSupplier;

/** What tests share. */
final class Support {
    private Support() {}

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }

    /** Fails unless this throws an error of the kind. Returns the error. */
    static KelixException fails(ErrorKind kind, ThrowingRunnable call) {
        KelixException error = assertThrows(KelixException.class, call);
        assertEquals(error.toString(), kind, error.kind());
        return error;
    }

    /**
     * Waits until something is so. That it is so in the end is no matter of chance; when it is so
     * is.
     */
    static void until(String what, BooleanSupplier isSo) throws InterruptedException {
        long end = System.nanoTime() + 30_000_000_000L;
        while (!isSo.getAsBoolean()) {
            assertTrue(what, System.nanoTime() < end);
            Thread.sleep(1);
        }
    }

    /** Another thread that does something, whose error is told by {@link #end}. */
    static final class Other extends Thread {
        private Throwable error;

        Other(Callable<?> work) {
            super(() -> {});
            this.work = work;
            setDaemon(true);
            start();
        }

        private final Callable<?> work;

        @Override
        public void run() {
            try {
                work.call();
            } catch (Throwable thrown) {
                error = thrown;
            }
        }

        /** Waits for its end. */
        Throwable end() throws InterruptedException {
            join(30_000);
            assertTrue("the other thread has an end", !isAlive());
            return error;
        }
    }
}
