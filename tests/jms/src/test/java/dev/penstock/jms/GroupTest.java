package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.penstock.jms.OwnBroker.Ending;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.List;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Closing a message group: {@code JMSXGroupSeq} -1, docs/concepts/messages.md. */
@DisplayName("Closing a message group")
class GroupTest extends OwnBrokerCase {
    private static final int CLOSE = -1;

    private static void send(Session session, Queue queue, String text, int sequence) throws JMSException {
        TextMessage message = session.createTextMessage(text);
        message.setStringProperty("JMSXGroupID", "a");
        message.setIntProperty("JMSXGroupSeq", sequence);
        try (MessageProducer producer = session.createProducer(queue)) {
            producer.send(message);
        }
    }

    /** A consumer with room for two messages, of which the broker knows, and which it keeps unacknowledged. */
    private MessageConsumer roomForTwo(Queue queue) throws JMSException {
        Session session = open(failover("jms.prefetchPolicy.all=2")).createSession(Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(queue);
        flush(session);
        return consumer;
    }

    @Test
    @DisplayName("After the closing message the group is anybody's")
    void closed() throws Exception {
        startBroker(false, ONLY_WHAT_IS_DECLARED);
        broker.declare("- {type: penstock.queue, name: work, body: {}}");
        Session session = own();
        Queue queue = session.createQueue("work");
        MessageConsumer first = roomForTwo(queue);
        send(session, queue, "a1", 1);
        send(session, queue, "a2", CLOSE);
        send(session, queue, "a3", 1);
        assertEquals("a3", text(roomForTwo(queue)), "the first one has no room, and the group is closed");
        assertEquals(List.of("a1", "a2"), texts(first, 2));
    }

    @Test
    @DisplayName("A closing message that waits closes its group after a restart too")
    void closedAfterARestart() throws Exception {
        startBroker();
        Session session = own();
        Queue queue = session.createQueue("work");
        send(session, queue, "a1", 1);
        send(session, queue, "a2", CLOSE);
        send(session, queue, "a3", 1);
        broker.restart(Ending.KILLED);
        MessageConsumer first = roomForTwo(queue);
        assertEquals("a3", text(roomForTwo(queue)), "the first one has no room, and the group is closed");
        assertEquals("a1", text(first));
        Message closing = next(first);
        assertEquals("a2", closing.getBody(String.class));
        assertEquals(CLOSE, closing.getIntProperty("JMSXGroupSeq"));
    }

    @Test
    @DisplayName("Without a closing message the third one waits for the group's consumer")
    void notClosed() throws Exception {
        startBroker();
        Session session = own();
        Queue queue = session.createQueue("work");
        MessageConsumer first = roomForTwo(queue);
        send(session, queue, "a1", 1);
        send(session, queue, "a2", 2);
        send(session, queue, "a3", 3);
        MessageConsumer second = roomForTwo(queue);
        assertNothing(second);
        assertEquals(List.of("a1", "a2", "a3"), texts(first, 3));
        assertNothing(second);
    }
}
