package dev.penstock.jms.tool;

import java.io.BufferedOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/** One event per line on standard output, words separated by blanks, flushed at once: the record that a test compares. */
final class Report {
    private static final PrintStream OUT = new PrintStream(
            new BufferedOutputStream(new FileOutputStream(FileDescriptor.out)), false, StandardCharsets.UTF_8);

    private Report() {}

    static synchronized void event(Object... words) {
        StringBuilder line = new StringBuilder();
        for (Object word : words) {
            line.append(line.length() == 0 ? "" : " ").append(word);
        }
        OUT.println(line);
        OUT.flush();
    }

    /** The reason of a failure on one line; nothing for none. */
    static String reason(Throwable failure) {
        return failure == null ? "" : String.valueOf(failure.getMessage()).replaceAll("\\s+", " ");
    }
}
