package dev.penstock.jms.tool;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageEOFException;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TextMessage;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Collections;
import java.util.Enumeration;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * Makes a backlog of messages of every kind, and takes one, with a line for each message that says everything JMS shows of it.
 *
 * <p>Options: {@code --uri}; {@code --topic} or {@code --queue}; to send {@code --count}, {@code --priorities} 1 for mixed ones; to
 * take {@code --take} all | none, or a number, after which the rest stays, {@code --subscription} of the topic, {@code --shared} 1,
 * {@code --client-id}, {@code --selector}, {@code --give-back} 1 to leave without an acknowledgement. Events: {@code message NAME=VALUE ...},
 * the values URL-encoded, and {@code done COUNT}.
 */
public final class Backlog {
    private static final long HOUR_MILLIS = 3_600_000;
    private static final int KINDS = 5;
    private static final int PRIORITIES = 10;
    private static final int EXPIRING = 7;
    private static final int GROUPED = 4;

    private final Options options;

    private Backlog(Options options) {
        this.options = options;
    }

    /** Exit code 0 when all was sent or taken. */
    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments);
        JmsConnectionFactory factory = Access.factory(options);
        if (!options.text("client-id", "").isEmpty()) {
            factory.setClientID(options.text("client-id", ""));
        }
        try (Connection connection = factory.createConnection()) {
            connection.start();
            Backlog backlog = new Backlog(options);
            Report.event("done", options.text("take", "").isEmpty() ? backlog.send(connection) : backlog.take(connection));
        } catch (JMSException failure) {
            Report.event("failed", Report.reason(failure), Report.reason(failure.getCause()));
            System.exit(1);
        }
        System.exit(0);
    }

    private Destination destination(Session session) throws JMSException {
        String queue = options.text("queue", "");
        return queue.isEmpty() ? session.createTopic(options.required("topic")) : session.createQueue(queue);
    }

    private int send(Connection connection) throws Exception {
        Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(destination(session));
        int count = options.number("count", 1);
        boolean mixed = options.number("priorities", 0) == 1;
        for (int number = 0; number < count; number++) {
            Message message = withBody(session, number);
            describe(session, message, number);
            int priority = mixed ? number % PRIORITIES : Message.DEFAULT_PRIORITY;
            long life = number % PRIORITIES == EXPIRING ? HOUR_MILLIS : 0;
            producer.send(message, DeliveryMode.PERSISTENT, priority, life);
            report(message);
        }
        return count;
    }

    private static Message withBody(Session session, int number) throws JMSException {
        switch (number % KINDS) {
            case 0:
                return session.createTextMessage("order " + number + " für 3 €");
            case 1:
                BytesMessage bytes = session.createBytesMessage();
                bytes.writeBytes(new byte[] {0, -1, (byte) number});
                return bytes;
            case 2:
                MapMessage map = session.createMapMessage();
                map.setInt("int", number);
                map.setLong("long", number);
                map.setShort("short", (short) number);
                map.setByte("byte", (byte) number);
                map.setFloat("float", number);
                map.setDouble("double", number);
                map.setChar("char", 'x');
                map.setBoolean("boolean", true);
                map.setBytes("bytes", new byte[] {1, 2});
                map.setString("none", null);
                return map;
            case 3:
                StreamMessage stream = session.createStreamMessage();
                stream.writeInt(number);
                stream.writeString("text");
                stream.writeFloat(number);
                return stream;
            default:
                return session.createObjectMessage("object " + number);
        }
    }

    private static void describe(Session session, Message message, int number) throws JMSException {
        message.setIntProperty("amount", number);
        message.setLongProperty("long", number);
        message.setShortProperty("short", (short) number);
        message.setByteProperty("byte", (byte) number);
        message.setFloatProperty("float", number / 2f);
        message.setDoubleProperty("double", number / 2d);
        message.setBooleanProperty("boolean", number % 2 == 0);
        message.setStringProperty("region", "eu");
        message.setJMSType("invoice");
        message.setJMSCorrelationID("correlation " + number);
        message.setJMSReplyTo(session.createQueue("answers"));
        if (number % GROUPED == 0) {
            message.setStringProperty("JMSXGroupID", "group");
            message.setIntProperty("JMSXGroupSeq", number + 1);
        }
    }

    private int take(Connection connection) throws Exception {
        boolean back = options.number("give-back", 0) == 1;
        Session session = connection.createSession(Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer = consumer(session);
        String wanted = options.required("take");
        int most = wanted.equals("all") ? Integer.MAX_VALUE : wanted.equals("none") ? 0 : Integer.parseInt(wanted);
        int taken = 0;
        while (taken < most) {
            Message message = consumer.receive(options.number("wait-millis", 2000));
            if (message == null) {
                break;
            }
            taken++;
            report(message);
            if (!back) {
                message.acknowledge();
            }
        }
        return taken;
    }

    private MessageConsumer consumer(Session session) throws JMSException {
        String subscription = options.text("subscription", "");
        String selector = options.text("selector", null);
        if (subscription.isEmpty()) {
            return session.createConsumer(destination(session), selector);
        }
        return options.number("shared", 0) == 1
                ? session.createSharedDurableConsumer(session.createTopic(options.required("topic")), subscription, selector)
                : session.createDurableConsumer(session.createTopic(options.required("topic")), subscription, selector, false);
    }

    private static void report(Message message) throws JMSException {
        Map<String, Object> seen = new TreeMap<>();
        seen.put("id", message.getJMSMessageID());
        seen.put("type", message.getJMSType());
        seen.put("correlation", message.getJMSCorrelationID());
        seen.put("priority", message.getJMSPriority());
        seen.put("mode", message.getJMSDeliveryMode());
        seen.put("expiration", message.getJMSExpiration());
        seen.put("timestamp", message.getJMSTimestamp());
        seen.put("replyTo", message.getJMSReplyTo());
        seen.put("destination", message.getJMSDestination());
        seen.put("body", body(message));
        seen.put("redelivered", message.getJMSRedelivered());
        for (String name : Collections.list((Enumeration<?>) message.getPropertyNames()).stream().map(Object::toString).toList()) {
            seen.put((name.equals("JMSXDeliveryCount") ? "" : "property.") + name, typed(message.getObjectProperty(name)));
        }
        StringBuilder line = new StringBuilder();
        seen.forEach((name, value) ->
                line.append(' ').append(name).append('=').append(URLEncoder.encode(String.valueOf(value), StandardCharsets.UTF_8)));
        Report.event("message", line.substring(1));
    }

    private static String typed(Object value) {
        if (value instanceof byte[] bytes) {
            return "byte[] " + Base64.getEncoder().encodeToString(bytes);
        }
        return value == null ? "null" : value.getClass().getSimpleName() + " " + value;
    }

    private static String body(Message message) throws JMSException {
        if (message instanceof TextMessage text) {
            return "text " + text.getText();
        }
        if (message instanceof ObjectMessage object) {
            return "object " + typed(object.getObject());
        }
        if (message instanceof BytesMessage) {
            return "bytes " + (message.isBodyAssignableTo(byte[].class) ? typed(bytesOf((BytesMessage) message)) : "");
        }
        if (message instanceof MapMessage map) {
            Map<String, String> entries = new TreeMap<>();
            for (Object name : Collections.list((Enumeration<?>) map.getMapNames())) {
                entries.put(name.toString(), typed(map.getObject(name.toString())));
            }
            return "map " + entries;
        }
        if (message instanceof StreamMessage stream) {
            return "stream " + valuesOf(stream);
        }
        return "none";
    }

    private static byte[] bytesOf(BytesMessage message) throws JMSException {
        message.reset();
        byte[] found = new byte[(int) message.getBodyLength()];
        message.readBytes(found);
        return found;
    }

    private static List<String> valuesOf(StreamMessage stream) throws JMSException {
        List<String> found = new java.util.ArrayList<>();
        stream.reset();
        try {
            while (true) {
                found.add(typed(stream.readObject()));
            }
        } catch (MessageEOFException end) {
            return found;
        }
    }
}
