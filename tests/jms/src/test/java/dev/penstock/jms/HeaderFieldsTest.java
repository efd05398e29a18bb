package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.penstock.jms.OwnBroker.Ending;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageFormatException;
import jakarta.jms.MessageNotWriteableException;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * Header fields that a send sets, whatever the application has set, and properties, over a restart.
 *
 * <p>Sources: Jakarta Messaging 3.1, 3.4 (header fields), 3.5.4 (property value conversion), 3.8.1.2 (selectors).
 */
@DisplayName("Header fields and properties")
class HeaderFieldsTest extends OwnBrokerCase {
    private static final long HOUR = 3_600_000;

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("Sending sets ID, time, expiry, priority, mode and destination; what was set before does not count")
    void setBySend(Ending ending) throws Exception {
        startBroker();
        Session session = own();
        Queue queue = session.createQueue("work");
        TextMessage sent = session.createTextMessage("order");
        sent.setJMSMessageID("ID:mine");
        sent.setJMSTimestamp(1);
        sent.setJMSExpiration(2);
        sent.setJMSDeliveryTime(3);
        sent.setJMSPriority(1);
        sent.setJMSDeliveryMode(DeliveryMode.NON_PERSISTENT);
        sent.setJMSRedelivered(true);
        sent.setJMSDestination(session.createQueue("elsewhere"));
        MessageProducer producer = session.createProducer(queue);
        long before = System.currentTimeMillis();
        producer.send(sent, DeliveryMode.PERSISTENT, 6, HOUR);
        long after = System.currentTimeMillis();
        String first = sent.getJMSMessageID();
        producer.send(sent);
        broker.restart(ending);

        MessageConsumer consumer = session.createConsumer(queue);
        Message back = next(consumer);
        assertEquals(first, back.getJMSMessageID());
        assertNotEquals("ID:mine", first);
        assertTrue(first.startsWith("ID:"), first);
        assertTrue(before <= back.getJMSTimestamp() && back.getJMSTimestamp() <= after);
        assertEquals(back.getJMSTimestamp() + HOUR, back.getJMSExpiration());
        assertEquals(back.getJMSTimestamp(), back.getJMSDeliveryTime());
        assertEquals(6, back.getJMSPriority());
        assertEquals(DeliveryMode.PERSISTENT, back.getJMSDeliveryMode());
        assertEquals(queue, back.getJMSDestination());
        assertFalse(back.getJMSRedelivered());
        Message second = next(consumer);
        assertNotEquals(first, second.getJMSMessageID(), "each sending has an ID of its own");
        assertEquals(0, second.getJMSExpiration());
        assertEquals(Message.DEFAULT_PRIORITY, second.getJMSPriority());
    }

    @Test
    @DisplayName("A producer may leave out IDs and timestamps")
    void leftOut() throws Exception {
        startBroker();
        Session session = own();
        Queue queue = session.createQueue("work");
        try (MessageProducer producer = session.createProducer(queue)) {
            producer.setDisableMessageID(true);
            producer.setDisableMessageTimestamp(true);
            producer.send(session.createTextMessage("bare"));
        }
        broker.restart(Ending.KILLED);
        Message back = next(session.createConsumer(queue));
        assertNull(back.getJMSMessageID());
        assertEquals(0, back.getJMSTimestamp());
        assertEquals("bare", back.getBody(String.class));
    }

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("A received message that is sent on is a new one: not redelivered, with its properties and an ID of its own")
    void sentOn(Ending ending) throws Exception {
        startBroker();
        Session session = open(failover()).createSession(Session.CLIENT_ACKNOWLEDGE);
        Queue in = session.createQueue("in");
        Queue out = session.createQueue("out");
        TextMessage sent = session.createTextMessage("order");
        sent.setStringProperty("region", "eu");
        sent.setJMSCorrelationID("c");
        session.createProducer(in).send(sent);
        MessageConsumer consumer = session.createConsumer(in);
        next(consumer);
        session.recover();
        Message again = next(consumer);
        assertEquals(2, again.getIntProperty("JMSXDeliveryCount"));
        session.createProducer(out).send(again);
        again.acknowledge();
        broker.restart(ending);

        Message back = next(own().createConsumer(out));
        assertFalse(back.getJMSRedelivered());
        assertEquals(1, back.getIntProperty("JMSXDeliveryCount"));
        assertNotEquals(sent.getJMSMessageID(), back.getJMSMessageID());
        assertEquals(List.of("eu", "c"), List.of(back.getStringProperty("region"), back.getJMSCorrelationID()));
        assertEquals(out, back.getJMSDestination());
    }

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("Selectors on header fields find the message that has them, after a restart too")
    void selected(Ending ending) throws Exception {
        startBroker();
        Session session = own();
        Queue queue = session.createQueue("work");
        TextMessage sent = session.createTextMessage("this");
        sent.setJMSType("order");
        sent.setStringProperty("JMSXGroupID", "g");
        sent.setIntProperty("JMSXGroupSeq", 3);
        MessageProducer producer = session.createProducer(queue);
        producer.send(session.createTextMessage("other"));
        producer.send(sent, DeliveryMode.PERSISTENT, 7, HOUR);
        List<String> selectors = List.of(
                "JMSMessageID = '" + sent.getJMSMessageID() + "'",
                "JMSMessageID IN ('ID:none', '" + sent.getJMSMessageID() + "') AND JMSPriority > 4",
                "JMSTimestamp BETWEEN " + sent.getJMSTimestamp() + " AND " + sent.getJMSTimestamp() + " AND JMSType = 'order'",
                "JMSXGroupID = 'g' AND JMSXGroupSeq = 3",
                "JMSType LIKE 'or_er' AND JMSCorrelationID IS NULL AND JMSDeliveryMode <> 'NON_PERSISTENT'");
        for (String selector : selectors) {
            assertEquals(List.of("this"), browsed(session, queue, selector), selector);
        }
        broker.restart(ending);
        for (String selector : selectors) {
            assertEquals(List.of("this"), browsed(session, queue, selector), selector);
        }
        assertEquals(List.of("this", "other"), browsed(session, queue, ""), "an empty selector is none");
    }

    @Test
    @DisplayName("Properties are read as the types that they convert to, and a received message is not written")
    void conversions() throws Exception {
        startBroker();
        Session session = own();
        Queue queue = session.createQueue("work");
        TextMessage sent = session.createTextMessage("order");
        sent.setByteProperty("byte", (byte) 1);
        sent.setFloatProperty("float", 1.5f);
        sent.setStringProperty("number", "12");
        sent.setBooleanProperty("flag", true);
        sent.setObjectProperty("nothing", null);
        session.createProducer(queue).send(sent);
        broker.restart(Ending.TERMINATED);

        Message back = next(session.createConsumer(queue));
        assertEquals(1L, back.getLongProperty("byte"));
        assertEquals("1", back.getStringProperty("byte"));
        assertEquals(1.5, back.getDoubleProperty("float"));
        assertEquals(12, back.getIntProperty("number"));
        assertEquals("true", back.getStringProperty("flag"));
        assertNull(back.getObjectProperty("nothing"));
        assertTrue(back.propertyExists("nothing"));
        assertFalse(back.propertyExists("absent"));
        assertThrows(MessageFormatException.class, () -> back.getIntProperty("float"));
        assertThrows(MessageFormatException.class, () -> back.getByteProperty("flag"));
        assertThrows(NumberFormatException.class, () -> back.getIntProperty("absent"));
        Set<Object> names = new HashSet<>(Collections.list((java.util.Enumeration<?>) back.getPropertyNames()));
        names.removeIf(name -> name.toString().startsWith("JMSX"));
        assertEquals(Set.of("byte", "float", "number", "flag", "nothing"), names);
        assertThrows(MessageNotWriteableException.class, () -> back.setStringProperty("number", "13"));
        assertThrows(MessageNotWriteableException.class, () -> ((TextMessage) back).setText("other"));
        back.clearProperties();
        back.setStringProperty("number", "13");
        assertEquals("order", back.getBody(String.class));
    }
}
