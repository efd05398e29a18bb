package dev.penstock.jms;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import java.util.List;
import java.util.Map;

/**
 * {@code $management} as a JMS application uses it (docs/reference/management.md): a request is a map message, its answer comes to a
 * temporary queue. Its user needs {@link #EVERYTHING}, or as much of it as the requests want.
 */
final class Management {
    /** Permissions (docs/reference/security.md) with which "guest" may do everything. */
    static final String EVERYTHING = """
            permissions:
              - users: [guest]
                actions: [publish, consume, create, manage]
                exchanges: ["*"]
                subscriptions: ["*"]
                queues: ["*"]
                management: true
            """;

    private final Session session;
    private final MessageProducer requests;
    private final TemporaryQueue replyTo;
    private final MessageConsumer answers;

    /** Takes a connection that is started. */
    Management(Connection connection) throws JMSException {
        session = connection.createSession();
        requests = session.createProducer(session.createQueue("$management"));
        replyTo = session.createTemporaryQueue();
        answers = session.createConsumer(replyTo);
    }

    /** An answer's status code and body. */
    record Answer(int status, Map<?, ?> body) {
        /** A number of the body; -1 if it is not there. */
        long number(String key) {
            return body.get(key) instanceof Number number ? number.longValue() : -1;
        }

        /** A list of maps of the body. */
        List<Map<?, ?>> maps(String key) {
            return ((List<?>) body.get(key)).stream().<Map<?, ?>>map(each -> (Map<?, ?>) each).toList();
        }
    }

    /** Sends a request without waiting for its answer. */
    void send(String operation, String type, String name, Map<String, ?> body) throws JMSException {
        MapMessage request = session.createMapMessage();
        request.setJMSReplyTo(replyTo);
        request.setStringProperty("operation", operation);
        request.setStringProperty("type", type);
        request.setStringProperty("name", name);
        for (var entry : body.entrySet()) {
            request.setObject(entry.getKey(), entry.getValue());
        }
        requests.send(request);
    }

    /** Sends a request and waits for its answer; fails if none comes. */
    Answer request(String operation, String type, String name, Map<String, ?> body) throws JMSException {
        send(operation, type, name, body);
        Message answer = answers.receive(JmsTestCase.SOON);
        if (answer == null) {
            throw new JMSException("no answer to " + operation + " of " + name);
        }
        Object value = answer instanceof ObjectMessage message ? message.getObject() : null; // an AMQP value, no Java object
        return new Answer(answer.getIntProperty("statusCode"), value instanceof Map<?, ?> map ? map : Map.of());
    }

    /** The answer to a request about a queue. */
    Answer ofQueue(String operation, String queue, Map<String, ?> body) throws JMSException {
        return request(operation, "penstock.queue", queue, body);
    }
}
