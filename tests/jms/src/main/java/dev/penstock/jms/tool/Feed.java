package dev.penstock.jms.tool;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;

/**
 * Sends persistent messages at a steady pace.
 *
 * <p>Options: {@code --topic} or {@code --queue}, {@code --per-second} (1), {@code --burst}, how many are sent at once at the beginning (0),
 * {@code --most}, how many are sent in all (no limit), {@code --ttl-millis} (none), {@code --group} of each message (none),
 * {@code --poison} yes: each message says so, and its id is reported as {@code poison NAME ID}.
 */
final class Feed implements Fleet.Client {
    private final String name;
    private final Options options;
    private final Connection connection;
    private volatile boolean isClosed;

    Feed(String name, Options options) throws Exception {
        this.name = name;
        this.options = options;
        this.connection = Access.factory(options).createConnection();
    }

    @Override
    public void run() throws Exception {
        try (connection) {
            connection.start();
            Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            String queue = options.text("queue", "");
            MessageProducer producer = session.createProducer(
                    queue.isEmpty() ? session.createTopic(options.required("topic")) : session.createQueue(queue));
            producer.setTimeToLive(options.number("ttl-millis", 0));
            Report.event("ready", name);
            int most = options.number("most", Integer.MAX_VALUE);
            int burst = options.number("burst", 0);
            Pace pace = new Pace(Double.parseDouble(options.text("per-second", "1")));
            for (int sent = 0; sent < most && !isClosed; sent++) {
                if (sent >= burst) {
                    pace.await();
                }
                send(session, producer);
            }
        } catch (JMSException failure) {
            if (!isClosed) {
                throw failure;
            }
        }
    }

    private void send(Session session, MessageProducer producer) throws JMSException {
        TextMessage message = session.createTextMessage("x".repeat(100));
        String group = options.text("group", "");
        if (!group.isEmpty()) {
            message.setStringProperty("JMSXGroupID", group);
        }
        boolean isPoison = options.text("poison", "no").equals("yes");
        message.setBooleanProperty("poison", isPoison);
        producer.send(message);
        if (isPoison) {
            Report.event("poison", name, message.getJMSMessageID());
        }
    }

    @Override
    public void close() throws JMSException {
        isClosed = true;
        connection.close();
    }
}
