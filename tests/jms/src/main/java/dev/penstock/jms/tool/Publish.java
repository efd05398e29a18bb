package dev.penstock.jms.tool;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.io.IOException;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * Sends persistent messages and reports the fate of each attempt.
 *
 * <p>Each attempt bears an id of its own, {@code NAME-NUMBER.ATTEMPT}. An attempt whose answer a broken connection has swallowed is
 * "doubtful" and the number is sent again as the next attempt. So whoever counts can tell a broker's second delivery from a
 * producer's second attempt; hence no failover URI here, which would repeat attempts unseen.
 *
 * <p>Options: {@code --uri --topic --name --count}, {@code --connections} (4), {@code --size} of a body in bytes (100),
 * {@code --amount}, a property of each message (none), {@code --pause-millis} after each message (0), {@code --until-input-ends} 1:
 * stop in good order when standard input ends, whatever the count. Events: {@code accepted ID}, {@code doubtful ID REASON}, {@code published COUNT}.
 */
public final class Publish {
    private static final int RECONNECT_AFTER_MILLIS = 100;
    private static final int READ_BYTES = 64;

    private final Options options;
    private final JmsConnectionFactory factory;
    private final AtomicInteger next = new AtomicInteger();
    private final AtomicInteger accepted = new AtomicInteger();
    private final long pause;
    private volatile int count;
    private volatile boolean stopped;
    private final int amount;
    private final String body;

    private Publish(Options options) throws Exception {
        this.options = options;
        this.factory = Access.factory(options);
        this.count = options.number("count", 1);
        this.pause = options.number("pause-millis", 0);
        this.amount = options.number("amount", 0);
        this.body = "x".repeat(options.number("size", 100));
    }

    /** Exit code 0 when every number has been accepted. */
    public static void main(String[] arguments) throws Exception {
        Publish publish = new Publish(new Options(arguments));
        if (publish.options.number("until-input-ends", 0) == 1) {
            Thread watcher = new Thread(publish::awaitEndOfInput, "stdin");
            watcher.setDaemon(true);
            watcher.start();
        }
        Thread[] threads = new Thread[publish.options.number("connections", 4)];
        for (int i = 0; i < threads.length; i++) {
            threads[i] = new Thread(publish::sendShare, "publish-" + i);
            threads[i].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        Report.event("published", publish.accepted.get());
        System.exit(publish.stopped || publish.accepted.get() == publish.count ? 0 : 1);
    }

    private void awaitEndOfInput() {
        byte[] ignored = new byte[READ_BYTES];
        try {
            while (System.in.read(ignored) >= 0) {
                continue;
            }
        } catch (IOException broken) {
            // as good as its end
        }
        stopped = true;
        count = 0;
    }

    private void sendShare() {
        int number = next.getAndIncrement();
        int attempt = 1;
        while (number < count) {
            try (Connection connection = factory.createConnection()) {
                connection.start();
                Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
                MessageProducer producer = session.createProducer(session.createTopic(options.required("topic")));
                while (number < count) {
                    if (send(session, producer, id(number, attempt))) {
                        number = next.getAndIncrement();
                        attempt = 1;
                        pause(pause);
                    } else {
                        attempt++;
                        break;
                    }
                }
            } catch (JMSException unreachable) {
                pause(RECONNECT_AFTER_MILLIS); // nothing was sent: the same attempt again, on a new connection
            }
        }
    }

    private String id(int number, int attempt) {
        return options.text("name", "m") + "-" + number + "." + attempt;
    }

    private boolean send(Session session, MessageProducer producer, String id) throws JMSException {
        TextMessage message = session.createTextMessage(body);
        message.setStringProperty("id", id);
        if (amount > 0) {
            message.setIntProperty("amount", amount);
        }
        try {
            producer.send(message);
            accepted.incrementAndGet();
            Report.event("accepted", id);
            return true;
        } catch (JMSException unanswered) {
            Report.event("doubtful", id, Report.reason(unanswered));
            return false;
        }
    }

    private static void pause(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
