package org.kelix.test;

import java.util.stream.Collectors;
import org.junit.runner.JUnitCore;
import org.junit.runner.Result;
import org.junit.runner.notification.Failure;

/** Runs the test classes that are named, or all. The last line tells how many passed and failed. */
public final class Main {
    private static final Class<?>[] ALL = {ScriptTest.class};

    private Main() {}

    /** A trace without the lines of who runs the tests. */
    private static String ours(String trace) {
        return trace.lines()
                .filter(line -> !line.matches("\\s+at (org\\.junit|java\\.base/jdk|java\\.base/java\\.lang\\.refl).*"))
                .limit(60)
                .collect(Collectors.joining("\n"));
    }

    public static void main(String[] arguments) throws Exception {
        Class<?>[] classes = arguments.length == 0 ? ALL : new Class<?>[arguments.length];
        for (int at = 0; at < arguments.length; at++) {
            classes[at] = Class.forName("org.kelix.test." + arguments[at]);
        }
        int passed = 0;
        int failed = 0;
        for (Class<?> each : classes) {
            long begun = System.nanoTime();
            Result result = new JUnitCore().run(each);
            for (Failure failure : result.getFailures()) {
                System.out.println("FAIL  " + failure.getTestHeader() + "\n" + ours(failure.getTrace()));
            }
            int ran = result.getRunCount() - result.getFailureCount();
            System.out.printf("%-4s  %s: %d tests in %.1f s%n", result.wasSuccessful() ? "ok" : "FAIL",
                    each.getSimpleName(), result.getRunCount(), (System.nanoTime() - begun) / 1e9);
            passed += ran;
            failed += result.getFailureCount();
        }
        System.out.println(passed + " passed, " + failed + " failed");
        // Threads that a test has left must not keep the process.
        System.exit(failed == 0 ? 0 : 1);
    }
}
