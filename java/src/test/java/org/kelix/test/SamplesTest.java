package org.kelix.test;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import org.junit.Test;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/**
 * Runs the samples of pages. A block that begins with an import is a program. All others of a page,
 * one after the other, are one method.
 */
public class SamplesTest {
    private static final String IMPORTS =
            "import static java.nio.charset.StandardCharsets.UTF_8; import java.nio.*; import"
                + " java.time.*; import java.util.*; import java.util.concurrent.*; import"
                + " org.kelix.*; ";

    @Test
    public void ofThePageAboutJava() throws Exception {
        assertEquals(9, run("docs/java.md"));
    }

    @Test
    public void ofTheReadme() throws Exception {
        assertEquals(1, run("README.md"));
    }

    /** Runs all samples of a page. Returns how many they are. */
    private static int run(String page) throws Exception {
        String text = Files.readString(Path.of(System.getenv("KELIX_PAGES")).resolve(page));
        Matcher blocks =
                Pattern.compile("^```java\\n(.*?)^```$", Pattern.MULTILINE | Pattern.DOTALL)
                        .matcher(text);
        StringBuilder statements = new StringBuilder();
        List<String> programs = new ArrayList<>();
        int count = 0;
        while (blocks.find()) {
            count++;
            String block = blocks.group(1);
            if (block.startsWith("import ")) {
                programs.add(block);
            } else {
                // Each line stands where it does in the page, so that errors name it.
                long line = text.substring(0, blocks.start(1)).lines().count();
                while (statements.chars().filter(each -> each == '\n').count() < line) {
                    statements.append('\n');
                }
                statements.append(block);
            }
        }
        if (statements.length() > 0) {
            programs.add(
                    IMPORTS
                            + "class Samples { public static void main(String[] arguments) throws"
                            + " Exception {"
                            + statements
                            + "} }");
        }
        for (String program : programs) {
            run(page, program);
        }
        return count;
    }

    private static void run(String page, String program) throws Exception {
        Path folder = Files.createTempDirectory("kelix-java-test-");
        Path source = folder.resolve("Samples.java");
        Path said = folder.resolve("said");
        Files.writeString(source, program);
        try (Server server = new Server()) {
            String java =
                    System.getProperty("java.home")
                            + File.separator
                            + "bin"
                            + File.separator
                            + "java";
            List<String> command =
                    new ArrayList<>(
                            List.of(java, "-ea", "-cp", System.getProperty("java.class.path")));
            if (Runtime.version().feature() >= 22) {
                command.add("--enable-native-access=ALL-UNNAMED");
            }
            command.add(source.toString());
            ProcessBuilder builder =
                    new ProcessBuilder(command)
                            .redirectErrorStream(true)
                            .redirectOutput(said.toFile());
            builder.environment().put("KELIX_DIR", server.address());
            Process process = builder.start();
            assertTrue("a sample of " + page + " ends", process.waitFor(60, TimeUnit.SECONDS));
            assertEquals(page + ": " + Files.readString(said), 0, process.exitValue());
        } finally {
            try (Stream<Path> files = Files.list(folder)) {
                for (Path file : files.toList()) {
                    Files.delete(file);
                }
            }
            Files.delete(folder);
        }
    }
}
