package dev.penstock.jms.tool;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import java.io.IOException;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.qpid.jms.JmsConnection;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * Consumes from a shared durable subscription and reports each receipt; ends when its standard input does, or after {@code --max}.
 *
 * <p>Options: {@code --uri --topic --subscription}, {@code --client-id} (none), {@code --max} receipts (no limit),
 * {@code --work-millis} per message (0), {@code --ack} each | never (each). Events: {@code ready}, {@code received ID DELIVERY-COUNT} with
 * AMQP's count (0 the first time), {@code settled ID} when acknowledged, {@code failed REASON}, {@code closed COUNT}; and with failover
 * those of {@link ConnectionReport}.
 */
public final class Consume {
    private static final long POLL_MILLIS = 250;

    private final Options options;
    private final AtomicBoolean stopping = new AtomicBoolean();

    private Consume(Options options) {
        this.options = options;
    }

    /** Exit code 0 after an orderly end. */
    public static void main(String[] arguments) throws Exception {
        Consume consume = new Consume(new Options(arguments));
        Thread watcher = new Thread(consume::awaitEndOfInput, "stdin");
        watcher.setDaemon(true);
        watcher.start();
        consume.run();
        System.exit(0);
    }

    private void run() throws Exception {
        JmsConnectionFactory factory = Access.factory(options);
        String clientId = options.text("client-id", "");
        if (!clientId.isEmpty()) {
            factory.setClientID(clientId);
        }
        try (Connection connection = factory.createConnection()) {
            ((JmsConnection) connection).addConnectionListener(new ConnectionReport());
            connection.setExceptionListener(failure -> Report.event("failed", Report.reason(failure)));
            connection.start();
            Session session = connection.createSession(Session.CLIENT_ACKNOWLEDGE);
            MessageConsumer consumer = session.createSharedDurableConsumer(
                    session.createTopic(options.required("topic")), options.required("subscription"));
            Report.event("ready");
            Report.event("closed", receive(consumer));
        } catch (JMSException failure) {
            Report.event("failed", Report.reason(failure), Report.reason(failure.getCause()));
            System.exit(1);
        }
    }

    private int receive(MessageConsumer consumer) throws Exception {
        int most = options.number("max", Integer.MAX_VALUE);
        int work = options.number("work-millis", 0);
        boolean acknowledging = options.text("ack", "each").equals("each");
        int received = 0;
        while (received < most && !stopping.get()) {
            Message message = consumer.receive(POLL_MILLIS);
            if (message == null) {
                continue;
            }
            received++;
            String id = message.getStringProperty("id");
            Report.event("received", id, message.getIntProperty("JMSXDeliveryCount") - 1);
            if (work > 0) {
                Thread.sleep(work);
            }
            if (acknowledging) {
                message.acknowledge();
                Report.event("settled", id);
            }
        }
        return received;
    }

    private void awaitEndOfInput() {
        try {
            while (System.in.read() >= 0) {
                // whatever is typed means nothing; the end of it means stop
            }
        } catch (IOException gone) {
            Report.event("failed", Report.reason(gone));
        }
        stopping.set(true);
    }
}
