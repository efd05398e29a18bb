package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.penstock.jms.OwnBroker.Ending;
import jakarta.jms.BytesMessage;
import jakarta.jms.DeliveryMode;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** What JMS says about a message's body, properties and headers, with a restart between sending and receiving. */
@DisplayName("Messages over a restart")
class MessageKindsTest extends OwnBrokerCase {
    private static final long HOUR = 3_600_000;

    @Test
    @DisplayName("Text, bytes, map, stream, object and empty messages come back as they were")
    void bodies() throws Exception {
        startBroker();
        Session session = own();
        Queue queue = session.createQueue("work");
        MessageProducer producer = session.createProducer(queue);
        producer.send(session.createTextMessage("text: äöü €"));
        producer.send(session.createTextMessage());
        BytesMessage bytes = session.createBytesMessage();
        bytes.writeBytes(new byte[] {0, 1, -1, 127, -128});
        bytes.writeLong(1L << 40);
        producer.send(bytes);
        MapMessage map = session.createMapMessage();
        map.setString("text", "x");
        map.setBoolean("boolean", true);
        map.setByte("byte", (byte) -1);
        map.setShort("short", (short) -2);
        map.setInt("int", -3);
        map.setLong("long", 1L << 50);
        map.setFloat("float", 1.5f);
        map.setDouble("double", 2.5);
        map.setChar("char", 'ß');
        map.setBytes("bytes", new byte[] {1, 2});
        map.setObject("null", null);
        producer.send(map);
        StreamMessage stream = session.createStreamMessage();
        stream.writeString("one");
        stream.writeInt(2);
        stream.writeDouble(3.5);
        stream.writeBytes(new byte[] {4});
        producer.send(stream);
        producer.send(session.createObjectMessage(new ArrayList<>(List.of("a", 1, 2.5))));
        producer.send(session.createMessage());
        broker.restart(Ending.KILLED);

        MessageConsumer consumer = session.createConsumer(queue);
        assertEquals("text: äöü €", assertInstanceOf(TextMessage.class, next(consumer)).getText());
        assertNull(assertInstanceOf(TextMessage.class, next(consumer)).getText());
        BytesMessage bytesBack = assertInstanceOf(BytesMessage.class, next(consumer));
        byte[] start = new byte[5];
        bytesBack.readBytes(start);
        assertArrayEquals(new byte[] {0, 1, -1, 127, -128}, start);
        assertEquals(1L << 40, bytesBack.readLong());
        assertEquals(13, bytesBack.getBodyLength());
        assertMap(assertInstanceOf(MapMessage.class, next(consumer)));
        StreamMessage streamBack = assertInstanceOf(StreamMessage.class, next(consumer));
        assertEquals("one", streamBack.readString());
        assertEquals(2, streamBack.readInt());
        assertEquals(3.5, streamBack.readDouble());
        assertArrayEquals(new byte[] {4}, (byte[]) streamBack.readObject());
        assertEquals(List.of("a", 1, 2.5), assertInstanceOf(ObjectMessage.class, next(consumer)).getObject());
        assertNull(next(consumer).getBody(Object.class));
        assertNothing(consumer);
    }

    private static void assertMap(MapMessage map) throws Exception {
        assertEquals("x", map.getObject("text"));
        assertEquals(true, map.getObject("boolean"));
        assertEquals((byte) -1, map.getObject("byte"));
        assertEquals((short) -2, map.getObject("short"));
        assertEquals(-3, map.getObject("int"));
        assertEquals(1L << 50, map.getObject("long"));
        assertEquals(1.5f, map.getObject("float"));
        assertEquals(2.5, map.getObject("double"));
        assertEquals('ß', map.getObject("char"));
        assertArrayEquals(new byte[] {1, 2}, (byte[]) map.getObject("bytes"));
        assertTrue(map.itemExists("null"));
        assertNull(map.getObject("null"));
        assertEquals(11, Collections.list((java.util.Enumeration<?>) map.getMapNames()).size());
    }

    @Test
    @DisplayName("Headers and properties come back as they were, each in its type")
    void headers() throws Exception {
        startBroker();
        Session session = own();
        Queue queue = session.createQueue("work");
        TextMessage sent = session.createTextMessage("order");
        sent.setJMSCorrelationIDAsBytes(new byte[] {1, 2, 3});
        sent.setJMSType("order");
        sent.setJMSReplyTo(session.createTopic("answers"));
        sent.setByteProperty("byte", (byte) 1);
        sent.setShortProperty("short", (short) 2);
        sent.setIntProperty("int", 3);
        sent.setLongProperty("long", 4);
        sent.setFloatProperty("float", 5.5f);
        sent.setDoubleProperty("double", 6.5);
        sent.setBooleanProperty("boolean", true);
        sent.setStringProperty("string", "ü");
        sent.setStringProperty("JMSXGroupID", "g");
        sent.setIntProperty("JMSXGroupSeq", 7);
        MessageProducer producer = session.createProducer(queue);
        producer.setTimeToLive(HOUR);
        producer.setPriority(8);
        producer.send(sent);
        broker.restart(Ending.TERMINATED);

        Message back = next(session.createConsumer(queue));
        assertEquals(sent.getJMSMessageID(), back.getJMSMessageID());
        assertEquals(sent.getJMSTimestamp(), back.getJMSTimestamp());
        assertArrayEquals(new byte[] {1, 2, 3}, back.getJMSCorrelationIDAsBytes());
        assertEquals("order", back.getJMSType());
        assertEquals(queue, back.getJMSDestination());
        assertEquals(session.createTopic("answers"), back.getJMSReplyTo());
        assertEquals(DeliveryMode.PERSISTENT, back.getJMSDeliveryMode());
        assertEquals(8, back.getJMSPriority());
        assertEquals(sent.getJMSExpiration(), back.getJMSExpiration());
        assertEquals(List.of((byte) 1, (short) 2, 3, 4L, 5.5f, 6.5, true, "ü", "g", 7),
                List.of(back.getObjectProperty("byte"), back.getObjectProperty("short"), back.getObjectProperty("int"),
                        back.getObjectProperty("long"), back.getObjectProperty("float"), back.getObjectProperty("double"),
                        back.getObjectProperty("boolean"), back.getObjectProperty("string"),
                        back.getObjectProperty("JMSXGroupID"), back.getObjectProperty("JMSXGroupSeq")));
    }

    @Test
    @DisplayName("JMSExpiration is 0 without time to live; JMSDeliveryTime is the time of sending, plus the delay")
    void times() throws Exception {
        startBroker();
        Session session = own();
        Queue queue = session.createQueue("work");
        MessageProducer producer = session.createProducer(queue);
        Message plain = session.createTextMessage("plain");
        producer.send(plain);
        producer.setDeliveryDelay(300);
        Message delayed = session.createTextMessage("delayed");
        producer.send(delayed);
        broker.restart(Ending.KILLED);
        MessageConsumer consumer = session.createConsumer(queue);
        Message first = next(consumer);
        assertEquals(0, first.getJMSExpiration());
        assertEquals(plain.getJMSTimestamp(), first.getJMSDeliveryTime());
        assertFalse(first.getJMSRedelivered());
        Message second = next(consumer);
        assertEquals(delayed.getJMSDeliveryTime(), second.getJMSDeliveryTime());
        assertTrue(second.getJMSDeliveryTime() >= delayed.getJMSTimestamp() + 300);
    }

    @Test
    @DisplayName("A message that is not persistent is gone after a restart; one for a declared subscription is kept")
    void notPersistent() throws Exception {
        startBroker(false, ONLY_WHAT_IS_DECLARED);
        broker.declare("""
                - {type: penstock.exchange, name: orders, body: {exchangeType: Topic}}
                - {type: penstock.queue, name: work, body: {persistence: AsSent}}
                - type: penstock.subscription
                  body:
                    subscriptionName: declared
                    owner: {clusterId: c, kind: Subscription, namespace: n, name: declared, uid: u, deletionPolicy: Retain}
                    exchange: orders
                    persistence: Always
                """);
        Session session = own();
        MessageConsumer made = session.createSharedDurableConsumer(session.createTopic("orders"), "made");
        made.close();
        for (var destination : List.of(session.createQueue("work"), session.createTopic("orders"))) {
            MessageProducer producer = session.createProducer(destination);
            producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
            producer.send(session.createTextMessage("volatile"));
            producer.setDeliveryMode(DeliveryMode.PERSISTENT);
            producer.send(session.createTextMessage("persistent"));
        }
        broker.restart(Ending.KILLED);
        assertEquals(List.of("persistent"), rest(session.createConsumer(session.createQueue("work"))));
        assertEquals(List.of("persistent"), rest(session.createSharedDurableConsumer(session.createTopic("orders"), "made")));
        assertEquals(List.of("volatile", "persistent"),
                rest(session.createSharedDurableConsumer(session.createTopic("orders"), "declared")));
    }
}
