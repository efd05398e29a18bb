package dev.penstock.jms;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** A process of {@code penstock} or of {@code declare}, forked by tests/jms_suite/forks.py; the protocol is that of tests/support/fork_server.py. */
final class ForkedProcess {
    private final long pid;
    private final CompletableFuture<Integer> code = new CompletableFuture<>();

    /**
     * Starts it.
     *
     * @param name {@code penstock} or {@code declare}
     * @param output the file to which its output is appended
     */
    ForkedProcess(Path output, String name, List<String> arguments) throws IOException {
        SocketChannel channel = SocketChannel.open(UnixDomainSocketAddress.of(TestBroker.forks()));
        String request = name + "\n" + output + "\n" + String.join("", arguments.stream().map(each -> each + "\n").toList()) + "\n";
        for (ByteBuffer left = ByteBuffer.wrap(request.getBytes(StandardCharsets.UTF_8)); left.hasRemaining(); ) {
            channel.write(left);
        }
        BufferedReader answers = new BufferedReader(new InputStreamReader(Channels.newInputStream(channel), StandardCharsets.UTF_8));
        pid = number(answers);
        Thread waiting = new Thread(() -> {
            try (channel) {
                code.complete((int) number(answers));
            } catch (IOException error) {
                code.completeExceptionally(error);
            }
        });
        waiting.setDaemon(true);
        waiting.start();
    }

    private static long number(BufferedReader answers) throws IOException {
        String line = answers.readLine();
        if (line == null) {
            throw new IOException("the process that forks has ended");
        }
        return Long.parseLong(line);
    }

    boolean isAlive() {
        return !code.isDone();
    }

    /** SIGTERM. */
    void terminate() {
        ProcessHandle.of(pid).ifPresent(ProcessHandle::destroy);
    }

    /** SIGKILL. */
    void kill() {
        ProcessHandle.of(pid).ifPresent(ProcessHandle::destroyForcibly);
    }

    /** Its exit code, negative for a signal. */
    int await() {
        try {
            return code.join();
        } catch (CompletionException error) {
            throw new UncheckedIOException(new IOException(error.getCause()));
        }
    }

    /** Whether it ends within this time. */
    boolean ends(long milliseconds) throws IOException {
        try {
            code.get(milliseconds, TimeUnit.MILLISECONDS);
            return true;
        } catch (TimeoutException runs) {
            return false;
        } catch (ExecutionException error) {
            throw new IOException(error.getCause());
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new IOException(interrupted);
        }
    }
}
