package orders;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.boot.ApplicationArguments;
import org.springframework.boot.ApplicationRunner;
import org.springframework.context.annotation.Profile;
import org.springframework.jms.core.JmsTemplate;
import org.springframework.stereotype.Component;

/** Publishes durable messages: when send returns, the message is on the broker's disk. */
@Component
@Profile("publish")
class Publisher implements ApplicationRunner {
    private static final Logger log = LoggerFactory.getLogger(Publisher.class);

    private final JmsTemplate jms;

    Publisher(JmsTemplate jms) {
        this.jms = jms;
    }

    @Override
    public void run(ApplicationArguments arguments) {
        int count = Integer.parseInt(arguments.getNonOptionArgs().get(1));
        for (int number = 0; number < count; number++) {
            jms.convertAndSend("orders/eu.fr", "order " + number); // "eu.fr" is the routing key
        }
        log.info("{} accepted", count);
    }
}
