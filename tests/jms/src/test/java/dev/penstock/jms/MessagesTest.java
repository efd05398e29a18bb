package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;

import jakarta.jms.BytesMessage;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The bare message arrives as it was sent, whatever its kind and size. */
@DisplayName("Messages")
class MessagesTest extends JmsTestCase {
    private static byte[] noise(int size) {
        byte[] body = new byte[size];
        new Random(size).nextBytes(body);
        return body;
    }

    @ParameterizedTest(name = "{0} bytes")
    @ValueSource(ints = {0, 1, 16_000, 65_536, 1_048_576, 5_000_000})
    @DisplayName("Bodies of any size, in frames of 16 KiB, come back byte for byte")
    void largeMessages(int size) throws JMSException {
        Topic topic = topic("files");
        Session session = session(connect("amqp.maxFrameSize=16384"));
        MessageConsumer consumer = session.createSharedDurableConsumer(topic, name("s"));
        BytesMessage sent = session.createBytesMessage();
        sent.writeBytes(noise(size));
        session.createProducer(topic).send(sent);

        BytesMessage received = assertInstanceOf(BytesMessage.class, next(consumer));
        byte[] body = new byte[(int) received.getBodyLength()];
        received.readBytes(body);
        assertArrayEquals(noise(size), body);
    }

    @Test
    @DisplayName("Headers and properties come through")
    void headersAndProperties() throws JMSException {
        Topic topic = topic("orders");
        Session session = session();
        MessageConsumer consumer = session.createConsumer(topic);
        TextMessage sent = session.createTextMessage("body");
        sent.setJMSCorrelationID("correlation");
        sent.setJMSType("order");
        sent.setJMSReplyTo(session.createQueue("answers"));
        sent.setStringProperty("region", "eu");
        sent.setLongProperty("size", 1L << 40);
        sent.setBooleanProperty("urgent", true);
        MessageProducer producer = session.createProducer(topic);
        producer.setPriority(7);
        producer.send(sent);

        Message received = next(consumer);
        assertEquals("body", received.getBody(String.class));
        assertEquals(sent.getJMSMessageID(), received.getJMSMessageID());
        assertEquals(sent.getJMSTimestamp(), received.getJMSTimestamp());
        assertEquals("correlation", received.getJMSCorrelationID());
        assertEquals("order", received.getJMSType());
        assertEquals(topic, received.getJMSDestination());
        assertEquals(session.createQueue("answers"), received.getJMSReplyTo());
        assertEquals(7, received.getJMSPriority());
        assertEquals(DeliveryMode.PERSISTENT, received.getJMSDeliveryMode());
        assertEquals("eu", received.getStringProperty("region"));
        assertEquals(1L << 40, received.getLongProperty("size"));
        assertEquals(true, received.getBooleanProperty("urgent"));
    }

    @Test
    @DisplayName("Map, stream and object messages come through")
    void otherKinds() throws JMSException {
        Topic topic = topic("orders");
        Session session = session();
        MessageConsumer consumer = session.createConsumer(topic);
        MessageProducer producer = session.createProducer(topic);
        MapMessage map = session.createMapMessage();
        map.setInt("amount", 3);
        producer.send(map);
        StreamMessage stream = session.createStreamMessage();
        stream.writeString("one");
        stream.writeDouble(2.5);
        producer.send(stream);
        producer.send(session.createObjectMessage(new java.util.ArrayList<>(List.of("a", "b"))));

        assertEquals(3, assertInstanceOf(MapMessage.class, next(consumer)).getInt("amount"));
        StreamMessage back = assertInstanceOf(StreamMessage.class, next(consumer));
        assertEquals("one", back.readString());
        assertEquals(2.5, back.readDouble());
        assertEquals(List.of("a", "b"), next(consumer).getBody(java.io.Serializable.class));
    }

    @Test
    @DisplayName("Publishing through an anonymous producer reaches the topic that the message names")
    void anonymousProducer() throws JMSException {
        Topic topic = topic("orders");
        MessageConsumer consumer = session().createSharedDurableConsumer(topic, name("s"));
        Session session = session();
        session.createProducer(null).send(topic, session.createTextMessage("relayed"));
        assertEquals("relayed", text(consumer));
    }

    @Test
    @DisplayName("A queue gives each message to one consumer, and keeps it until one comes")
    void queue() throws JMSException {
        Session session = session();
        Queue queue = session.createQueue(name("work"));
        session.createProducer(queue).send(session.createTextMessage("job"));
        MessageConsumer consumer = session().createConsumer(queue);
        assertEquals("job", text(consumer));
        assertNothing(consumer);
    }

    @Test
    @DisplayName("A persistent and a non-persistent message both reach an active consumer")
    void nonPersistent() throws JMSException {
        Topic topic = topic("orders");
        Session session = session();
        MessageConsumer consumer = session.createSharedDurableConsumer(topic, name("s"));
        MessageProducer producer = session.createProducer(topic);
        producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
        producer.send(session.createTextMessage("volatile"));
        producer.setDeliveryMode(DeliveryMode.PERSISTENT);
        producer.send(session.createTextMessage("durable"));
        Message first = next(consumer);
        assertEquals(DeliveryMode.NON_PERSISTENT, first.getJMSDeliveryMode());
        assertEquals("volatile", first.getBody(String.class));
        assertEquals("durable", text(consumer));
    }
}
