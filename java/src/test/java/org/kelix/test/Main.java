package org.kelix.test;

import org.junit.runner.JUnitCore;
import org.junit.runner.Result;
import org.junit.runner.notification.Failure;

import java.util.stream.Collectors;

/**
 * Runs the test classes that are named, or all. The last line tells how many tests passed and
 * failed.
 */
public final class Main {
    private static final Class<?>[] BASELINES = {
        MapSuites.OfHashMap.class, MapSuites.OfConcurrentHashMap.class
    };

    private static final Class<?>[] ALL = {
        ScriptTest.class,
        SessionTest.class,
        BadInputTest.class,
        ThreadsTest.class,
        LifetimeTest.class,
        MirrorTest.class,
        AsyncTest.class,
        MapTest.class,
        MapSuites.OfHashTables.class,
        MapSuites.OfOrderedTables.class,
        SamplesTest.class
    };

    private static final String RUNNER =
            "\\s+at ((org\\.)?junit\\.|java\\.base/(jdk|java\\.lang\\.reflect)).*";

    private static long passed;
    private static int failed;

    private Main() {}

    /** A trace without the lines of who runs the tests. */
    private static String ours(String trace) {
        return trace.lines()
                .filter(line -> !line.matches(RUNNER))
                .limit(20)
                .collect(Collectors.joining("\n"));
    }

    private static void run(Class<?> tests, String what) {
        long begun = System.nanoTime();
        Result result = new JUnitCore().run(tests);
        for (Failure failure : result.getFailures()) {
            System.out.println(
                    "FAIL  " + failure.getTestHeader() + "\n" + ours(failure.getTrace()));
        }
        // A test that is not run where it cannot be is no test that passed.
        System.out.printf(
                "%-4s  %s%s: %d tests, %d left out, in %.1f s%n",
                result.wasSuccessful() ? "ok" : "FAIL",
                what,
                tests.getSimpleName(),
                result.getRunCount(),
                result.getIgnoreCount() + result.getAssumptionFailureCount(),
                (System.nanoTime() - begun) / 1e9);
        failed += result.getFailureCount();
        if (what.isEmpty()) {
            passed +=
                    result.getRunCount()
                            - result.getFailureCount()
                            - result.getAssumptionFailureCount();
        }
    }

    public static void main(String[] arguments) throws ClassNotFoundException {
        if (arguments.length == 0) {
            for (Class<?> baseline : BASELINES) {
                run(baseline, "baseline ");
            }
            for (Class<?> tests : ALL) {
                run(tests, "");
            }
        }
        for (String name : arguments) {
            run(Class.forName("org.kelix.test." + name), "");
        }
        MapSuites.close();
        System.out.println(passed + " passed, " + failed + " failed");
        // Threads that a test has left must not keep the process.
        System.exit(failed == 0 ? 0 : 1);
    }
}
