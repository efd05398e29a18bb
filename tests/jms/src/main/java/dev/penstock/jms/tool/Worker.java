package dev.penstock.jms.tool;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.concurrent.CountDownLatch;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.jms.policy.JmsDefaultPrefetchPolicy;

/**
 * Consumes from a shared durable subscription, or from a queue, and handles each message as it is told.
 *
 * <p>Options: {@code --topic} and {@code --subscription}, or {@code --queue}; {@code --selector} (none), {@code --prefetch} (100),
 * {@code --per-second}, how many it handles at most (no limit), {@code --handler}: {@code accept} each (default); {@code hang} in the
 * first one for ever, reported as {@code hangs NAME}; {@code reject} each; {@code roll-back} poison, a second after it came, and accept the others.
 */
final class Worker implements Fleet.Client {
    private static final int REJECTED = 2; // the client's JMS_AMQP_ACK_TYPE of that outcome
    private static final long FAILING_MILLIS = 1000;

    private final String name;
    private final Options options;
    private final String handler;
    private final Connection connection;
    private volatile boolean isClosed;

    Worker(String name, Options options) throws Exception {
        this.name = name;
        this.options = options;
        this.handler = options.text("handler", "accept");
        JmsConnectionFactory factory = Access.factory(options);
        JmsDefaultPrefetchPolicy prefetch = new JmsDefaultPrefetchPolicy();
        prefetch.setAll(options.number("prefetch", 100));
        factory.setPrefetchPolicy(prefetch);
        this.connection = factory.createConnection();
    }

    @Override
    public void run() throws Exception {
        try (connection) {
            connection.start();
            boolean rollsBack = handler.equals("roll-back");
            Session session =
                    connection.createSession(rollsBack ? Session.SESSION_TRANSACTED : Session.CLIENT_ACKNOWLEDGE);
            MessageConsumer consumer = consumer(session);
            Report.event("ready", name);
            Pace pace = new Pace(Double.parseDouble(options.text("per-second", "0")));
            for (Message message = consumer.receive(); message != null; message = consumer.receive()) {
                pace.await();
                handle(session, message);
            }
        } catch (JMSException failure) {
            if (!isClosed) {
                throw failure;
            }
        }
    }

    private MessageConsumer consumer(Session session) throws JMSException {
        String queue = options.text("queue", "");
        if (queue.isEmpty()) {
            Topic topic = session.createTopic(options.required("topic"));
            return session.createSharedDurableConsumer(topic, options.required("subscription"));
        }
        return session.createConsumer(session.createQueue(queue), options.text("selector", null));
    }

    private void handle(Session session, Message message) throws JMSException, InterruptedException {
        switch (handler) {
            case "accept" -> message.acknowledge();
            case "hang" -> {
                Report.event("hangs", name);
                new CountDownLatch(1).await();
            }
            case "reject" -> {
                message.setIntProperty("JMS_AMQP_ACK_TYPE", REJECTED);
                message.acknowledge();
            }
            case "roll-back" -> {
                if (message.getBooleanProperty("poison")) {
                    Thread.sleep(FAILING_MILLIS);
                    session.rollback();
                } else {
                    session.commit();
                }
            }
            default -> throw new IllegalArgumentException("there is no handler " + handler);
        }
    }

    @Override
    public void close() throws JMSException {
        isClosed = true;
        connection.close();
    }
}
