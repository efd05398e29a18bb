package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.penstock.jms.OwnBroker.Ending;
import jakarta.jms.Connection;
import jakarta.jms.Destination;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TemporaryTopic;
import jakarta.jms.TextMessage;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Temporary queues and topics, request and reply, and producers without a destination. */
@DisplayName("Temporary destinations and anonymous producers")
class TemporaryTest extends OwnBrokerCase {
    /** Answers one request at the destination that it names. */
    private static void answer(Session session, MessageConsumer requests) throws JMSException {
        Message request = next(requests);
        TextMessage reply = session.createTextMessage(request.getBody(String.class) + "!");
        reply.setJMSCorrelationID(request.getJMSMessageID());
        try (MessageProducer anywhere = session.createProducer(null)) {
            anywhere.send(request.getJMSReplyTo(), reply);
        }
    }

    private static void ask(Session session, Queue service, Destination replyTo, String text) throws JMSException {
        try (MessageProducer producer = session.createProducer(service)) { // waits for the connection to be there again
            TextMessage request = session.createTextMessage(text);
            request.setJMSReplyTo(replyTo); // only then does the client know the new address
            producer.send(request);
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    @DisplayName("Request and reply over a temporary queue and a temporary topic, auto-creation on and off")
    void requestAndReply(boolean makesWhatIsNamed) throws Exception {
        startBroker(makesWhatIsNamed, makesWhatIsNamed ? "" : ONLY_WHAT_IS_DECLARED);
        if (!makesWhatIsNamed) {
            broker.declare("- {type: penstock.queue, name: service, body: {}}");
        }
        Session client = own();
        Session server = own();
        Queue service = client.createQueue("service");
        MessageConsumer requests = server.createConsumer(service);
        for (Destination replyTo : new Destination[] {client.createTemporaryQueue(), client.createTemporaryTopic()}) {
            MessageConsumer replies = client.createConsumer(replyTo);
            ask(client, service, replyTo, "ping");
            answer(server, requests);
            assertEquals("ping!", text(replies));
        }
    }

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("After a restart the client has its temporary queue again, under a new address")
    void afterRestart(Ending ending) throws Exception {
        startBroker();
        Session client = own();
        Session server = own();
        Queue service = client.createQueue("service");
        MessageConsumer requests = server.createConsumer(service);
        TemporaryQueue replyTo = client.createTemporaryQueue();
        MessageConsumer replies = client.createConsumer(replyTo);
        broker.restart(ending);
        ask(client, service, replyTo, "ping");
        answer(server, requests);
        assertEquals("ping!", text(replies));
    }

    @Test
    @DisplayName("Others may send to a temporary queue; it ends with delete, and with its connection")
    void ends() throws Exception {
        startBroker();
        Connection owner = open(direct("guest", "guest"));
        Session session = session(owner);
        TemporaryQueue deleted = session.createTemporaryQueue();
        TemporaryQueue left = session.createTemporaryQueue();
        assertNotEquals(deleted.getQueueName(), left.getQueueName());
        Session other = own();
        publish(other, other.createQueue(deleted.getQueueName()), "from another connection");
        MessageConsumer consumer = session.createConsumer(deleted);
        assertEquals("from another connection", text(consumer));
        assertThrows(JMSException.class, deleted::delete, "it has a consumer");
        consumer.close();
        deleted.delete();
        assertRefused(InvalidDestinationException.class, NOT_FOUND, () -> publish(other, deleted, "too late"));
        owner.close();
        assertRefused(InvalidDestinationException.class, NOT_FOUND, () -> publish(other, left, "too late"));
    }

    @Test
    @DisplayName("Only its connection may consume from a temporary queue or topic, whatever another calls it")
    void exclusive() throws Exception {
        startBroker();
        Session session = own();
        TemporaryQueue queue = session.createTemporaryQueue();
        TemporaryTopic topic = session.createTemporaryTopic();
        Session other = own();
        assertThrows(JMSException.class, () -> other.createConsumer(queue));
        assertRefused(LOCKED, () -> other.createConsumer(other.createQueue(queue.getQueueName())));
        assertRefused(LOCKED, () -> other.createConsumer(other.createTopic(topic.getTopicName())));
    }

    @Test
    @DisplayName("A durable subscription, shared or not, is refused on a temporary topic: to JMS it is an invalid destination")
    void notDurable() throws Exception {
        startBroker();
        Session session = session(open(failover("jms.clientID=billing")));
        TemporaryTopic topic = session.createTemporaryTopic();
        assertRefused(InvalidDestinationException.class, NOT_FOUND, () -> session.createDurableConsumer(topic, "s"));
        assertRefused(InvalidDestinationException.class, NOT_FOUND, () -> session.createSharedDurableConsumer(topic, "s"));
        MessageConsumer consumer = session.createConsumer(topic);
        publish(session, topic, "still there");
        assertEquals("still there", text(consumer));
    }

    @Test
    @DisplayName("A producer without a destination sends to queues and topics, and is told where nothing is")
    void anonymousProducer() throws Exception {
        startBroker(false, ONLY_WHAT_IS_DECLARED);
        broker.declare("""
                - {type: penstock.exchange, name: orders, body: {exchangeType: Topic}}
                - {type: penstock.queue, name: work, body: {}}
                """);
        Session session = own();
        MessageConsumer subscriber = session.createSharedDurableConsumer(session.createTopic("orders/eu.#"), "s");
        MessageConsumer worker = session.createConsumer(session.createQueue("work"));
        try (MessageProducer producer = session.createProducer(null)) {
            producer.send(session.createTopic("orders/eu.fr"), session.createTextMessage("to the topic"));
            producer.send(session.createTopic("orders/us"), session.createTextMessage("to nobody"));
            assertRefused(InvalidDestinationException.class, NOT_FOUND,
                    () -> producer.send(session.createQueue("unknown"), session.createTextMessage("lost")));
            assertRefused(InvalidDestinationException.class, NOT_FOUND,
                    () -> producer.send(session.createTopic("unknown"), session.createTextMessage("lost")));
            producer.send(session.createQueue("work"), session.createTextMessage("to the queue"));
        }
        assertEquals("to the topic", text(subscriber));
        assertNothing(subscriber);
        assertEquals("to the queue", text(worker));
    }

    @Test
    @DisplayName("A producer without a destination makes what it names, where auto-creation is on, and in a transaction")
    void anonymousCreation() throws Exception {
        startBroker();
        Session session = open(failover()).createSession(Session.SESSION_TRANSACTED);
        try (MessageProducer producer = session.createProducer(null)) {
            producer.send(session.createQueue("made"), session.createTextMessage("1"));
            session.commit();
        }
        assertEquals("1", text(own().createConsumer(session.createQueue("made"))));
    }

    @Test
    @DisplayName("A temporary queue and topic are gone after a restart, whoever knew their names, auto-creation or not")
    void goneAfterARestart() throws Exception {
        startBroker();
        Session session = session(open(direct("guest", "guest")));
        TemporaryQueue queue = session.createTemporaryQueue();
        TemporaryTopic topic = session.createTemporaryTopic();
        Session other = own();
        publish(other, other.createQueue(queue.getQueueName()), "nobody reads it");
        broker.restart(Ending.KILLED);
        Queue asQueue = other.createQueue(queue.getQueueName());
        assertRefused(InvalidDestinationException.class, NOT_FOUND, () -> publish(other, asQueue, "too late"));
        assertRefused(InvalidDestinationException.class, NOT_FOUND, () -> other.createConsumer(asQueue));
        assertRefused(InvalidDestinationException.class, NOT_FOUND,
                () -> publish(other, other.createTopic(topic.getTopicName()), "too late"));
    }
}
