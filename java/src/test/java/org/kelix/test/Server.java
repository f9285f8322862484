package org.kelix.test;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** A server on a run directory of its own, ended by its process id. The program is $KELIX. */
final class Server implements AutoCloseable {
    final Path directory;
    private Process process;
    private String said;

    private final List<String> options;

    Server() {
        this("--listen", "0", "--memory", "256M");
    }

    /** A mirror of this server, with a run directory of its own. */
    Server mirror() {
        return new Server("--mirror-of", tcp());
    }

    private Server(String... options) {
        this.options = List.of(options);
        try {
            directory = Files.createTempDirectory("kelix-java-test-");
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        start();
    }

    void start() {
        String program = System.getenv("KELIX");
        if (program == null) {
            throw new IllegalStateException("$KELIX has to name the program `kelix`");
        }
        List<String> command =
                new ArrayList<>(List.of(program, "serve", "--dir", directory.toString()));
        command.addAll(options);
        command.add("--no-pin");
        try {
            process =
                    new ProcessBuilder(command)
                            .redirectError(ProcessBuilder.Redirect.INHERIT)
                            .start();
            BufferedReader output =
                    new BufferedReader(
                            new InputStreamReader(
                                    process.getInputStream(), StandardCharsets.UTF_8));
            said = output.readLine();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        if (said == null || !said.startsWith("serving")) {
            throw new IllegalStateException("the server does not begin: " + said);
        }
    }

    String address() {
        return directory.toString();
    }

    /** Its address for TCP. */
    String tcp() {
        Matcher matcher = Pattern.compile("127\\.0\\.0\\.1:[0-9]+").matcher(said);
        if (!matcher.find()) {
            throw new IllegalStateException("the server does not listen: " + said);
        }
        return matcher.group();
    }

    private void signal(String name) {
        try {
            Process kill =
                    new ProcessBuilder("kill", "-" + name, Long.toString(process.pid())).start();
            if (kill.waitFor() != 0) {
                throw new IllegalStateException("the server cannot be sent " + name);
            }
        } catch (IOException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Lets it stand still, as if its host were too busy. */
    void standStill() {
        signal("STOP");
        // The signal reaches one thread after the other, and those behind serve on until then.
        while (!isStill()) {
            Thread.onSpinWait();
        }
    }

    /** Whether all threads are stopped: state T, behind the name in parentheses. */
    private boolean isStill() {
        Path tasks = Path.of("/proc", Long.toString(process.pid()), "task");
        try (Stream<Path> threads = Files.list(tasks)) {
            for (Path thread : threads.toList()) {
                String told = Files.readString(thread.resolve("stat"));
                if (told.charAt(told.lastIndexOf(')') + 2) != 'T') {
                    return false;
                }
            }
            return true;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    void goOn() {
        signal("CONT");
    }

    void kill() {
        process.destroyForcibly();
        try {
            process.waitFor();
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public void close() {
        try {
            if (process.isAlive()) {
                goOn();
                process.destroy();
                if (!process.waitFor(10, TimeUnit.SECONDS)) {
                    kill();
                }
            }
            try (Stream<Path> files = Files.walk(directory)) {
                for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
                    Files.deleteIfExists(file);
                }
            }
        } catch (IOException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
