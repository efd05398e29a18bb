package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.penstock.jms.OwnBroker.Ending;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import jakarta.jms.TransactionRolledBackException;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Applications that are at work while the broker restarts, with a failover: URI and nothing else done about it. */
@DisplayName("Work that goes on over restarts")
class FlowOverRestartsTest extends OwnBrokerCase {
    private static final int MESSAGES = 300;

    private static Set<String> numbers(int count) {
        return new HashSet<>(IntStream.range(0, count).mapToObj(Integer::toString).toList());
    }

    /** Sends numbered messages, one after the other; done when the last one is accepted. */
    private static CompletableFuture<Void> sending(Session session, Destination destination) {
        return CompletableFuture.runAsync(() -> {
            try (MessageProducer producer = session.createProducer(destination)) {
                for (int number = 0; number < MESSAGES; number++) {
                    producer.send(session.createTextMessage(Integer.toString(number)));
                }
            } catch (JMSException error) {
                throw new IllegalStateException(error);
            }
        });
    }

    @Test
    @DisplayName("A producer and listeners go on by themselves over three restarts; all that was sent arrives")
    void producerAndListeners() throws Exception {
        startBroker();
        Session publishing = own();
        Topic topic = publishing.createTopic("orders");
        BlockingQueue<String> receipts = new LinkedBlockingQueue<>();
        for (int i = 0; i < 2; i++) {
            own().createSharedDurableConsumer(topic, "s").setMessageListener(message -> {
                try {
                    receipts.add(message.getBody(String.class));
                } catch (JMSException error) {
                    throw new IllegalStateException(error);
                }
            });
        }
        CompletableFuture<Void> sending = sending(publishing, topic);
        Set<String> received = new HashSet<>();
        int restarts = 0;
        while (received.size() < MESSAGES) {
            String text = receipts.poll(SOON, TimeUnit.MILLISECONDS);
            assertTrue(text != null, () -> "only " + received.size() + " came");
            received.add(text);
            if (restarts < 3 && received.size() > 60 * (restarts + 1)) {
                broker.restart(restarts++ % 2 == 0 ? Ending.KILLED : Ending.TERMINATED);
            }
        }
        sending.get(SOON, TimeUnit.MILLISECONDS);
        assertEquals(3, restarts);
        assertEquals(numbers(MESSAGES), received);
    }

    @Test
    @DisplayName("Moving messages on in transactions over restarts: a broken one is rolled back and told, and each comes out once")
    void transactedMover() throws Exception {
        startBroker();
        Session filling = open(failover()).createSession(Session.SESSION_TRANSACTED);
        Queue in = filling.createQueue("in");
        publish(filling, in, IntStream.range(0, 60).mapToObj(Integer::toString).toArray(String[]::new));
        filling.commit();
        Session session = open(failover("jms.prefetchPolicy.all=10")).createSession(Session.SESSION_TRANSACTED);
        MessageConsumer consumer = session.createConsumer(in);
        Queue out = session.createQueue("out");
        int restarts = 0;
        int rolledBack = 0;
        for (int round = 1, moved = 0; moved < 60; round++) {
            List<String> texts = texts(consumer, 10);
            publish(session, out, texts.toArray(String[]::new));
            if (round % 2 == 0 && restarts < 2) {
                broker.restart(restarts++ == 0 ? Ending.KILLED : Ending.TERMINATED);
                assertNotCommitted(session::commit); // the transaction is not there any more
                continue;
            }
            try {
                session.commit();
                moved += 10;
            } catch (TransactionRolledBackException told) {
                rolledBack++; // by a client that heard late of the restart
            }
        }
        assertEquals(2, restarts);
        assertTrue(rolledBack <= 2, "only restarts undo transactions");
        Session reading = own();
        List<String> results = texts(reading.createConsumer(out), 60);
        assertEquals(numbers(60), new HashSet<>(results), "each once");
        assertEquals(List.of(), browsed(reading, in));
        assertEquals(List.of(), browsed(reading, out));
    }

    @Test
    @DisplayName("A browser in the middle of a restart ends, having seen every message, and takes none")
    void browser() throws Exception {
        startBroker();
        Session session = open(failover("jms.prefetchPolicy.queueBrowserPrefetch=5")).createSession(Session.AUTO_ACKNOWLEDGE);
        Queue queue = session.createQueue("work");
        List<String> texts = IntStream.range(0, 40).mapToObj(number -> "m" + number).toList();
        publish(own(), queue, texts.toArray(String[]::new));
        List<String> seen = new ArrayList<>();
        try (QueueBrowser browser = session.createBrowser(queue)) {
            for (Enumeration<?> messages = browser.getEnumeration(); messages.hasMoreElements(); ) {
                seen.add(((Message) messages.nextElement()).getBody(String.class));
                if (seen.size() == 3) {
                    broker.restart(Ending.KILLED);
                }
                assertTrue(seen.size() <= 80, "it never ends");
            }
        }
        assertEquals(texts, seen.stream().distinct().toList(), "the client may begin anew, but leaves none out");
        Message first = next(own().createConsumer(queue));
        assertEquals("m0", first.getBody(String.class));
        assertEquals(1, first.getIntProperty("JMSXDeliveryCount"));
    }

    @Test
    @DisplayName("A producer without destination, and one that was opened before, send on after a restart")
    void anonymousProducer() throws Exception {
        startBroker(false, ONLY_WHAT_IS_DECLARED);
        broker.declare("- {type: penstock.queue, name: work, body: {}}\n- {type: penstock.queue, name: other, body: {}}");
        Session session = own();
        Queue work = session.createQueue("work");
        Queue other = session.createQueue("other");
        MessageProducer anywhere = session.createProducer(null);
        MessageProducer opened = session.createProducer(work);
        for (String text : List.of("before", "after")) {
            anywhere.send(other, session.createTextMessage(text));
            opened.send(session.createTextMessage(text));
            if (text.equals("before")) {
                broker.restart(Ending.TERMINATED);
            }
        }
        assertRefused(NOT_FOUND, () -> anywhere.send(session.createQueue("unknown"), session.createTextMessage("lost")));
        assertEquals(List.of("before", "after"), browsed(session, work));
        assertEquals(List.of("before", "after"), browsed(session, other));
    }

    @Test
    @DisplayName("A request whose answer comes after a restart finds its way, over a queue that is not temporary")
    void requestAndReply() throws Exception {
        startBroker();
        Session client = own();
        Session server = own();
        Queue service = client.createQueue("service");
        Queue answers = client.createQueue("answers");
        MessageConsumer requests = server.createConsumer(service);
        MessageConsumer replies = client.createConsumer(answers);
        TextMessage request = client.createTextMessage("ping");
        request.setJMSReplyTo(answers);
        client.createProducer(service).send(request);
        Message taken = next(requests);
        broker.restart(Ending.KILLED);
        TextMessage reply = server.createTextMessage(taken.getBody(String.class) + "!");
        reply.setJMSCorrelationID(taken.getJMSMessageID());
        server.createProducer(null).send(taken.getJMSReplyTo(), reply);
        Message answer = next(replies);
        assertEquals("ping!", answer.getBody(String.class));
        assertEquals(request.getJMSMessageID(), answer.getJMSCorrelationID());
    }
}
