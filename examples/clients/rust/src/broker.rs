//! The connection, and what can go wrong with it.

use std::{env, fmt, time::Duration};

use fe2o3_amqp::{Connection, Session, connection, connection::ConnectionHandle, sasl_profile::SaslProfile, session::SessionHandle};
use tokio::time::timeout;

/// An attempt to connect that gets no answer is given up: the pod of that address may have just been deleted.
const ATTEMPT: Duration = Duration::from_secs(2);

/// Where the broker is, and who logs in.
pub struct Broker {
    url: String,
    user: String,
    password: String,
}

/// Why a connection ended.
pub enum Trouble {
    /// The broker does not let this user in, or does not give it what it asked for: trying again does not help.
    Refused(String),
    /// The broker is not there, or went away: try again.
    Lost(String),
}

impl Broker {
    /// None if a variable is missing.
    pub fn from_environment() -> Option<Broker> {
        let variable = |name| env::var(name).ok();
        Some(Broker {
            url: variable("PENSTOCK_URL")?,
            user: variable("PENSTOCK_USER")?,
            password: variable("PENSTOCK_PASSWORD")?,
        })
    }

    /// A connection with one session. The container-id is this process's own: the subscription is shared without it.
    pub async fn connect(&self) -> Result<(ConnectionHandle<()>, SessionHandle<()>), Trouble> {
        let login = SaslProfile::Plain { username: self.user.clone(), password: self.password.clone() };
        let opening = Connection::builder()
            .container_id(format!("orders-{}", std::process::id()))
            .idle_time_out(60_000_u32)
            .sasl_profile(login)
            .open(self.url.as_str());
        let mut connection = match timeout(ATTEMPT, opening).await {
            Err(_) => return Err(Trouble::Lost(format!("no answer within {} s", ATTEMPT.as_secs()))),
            Ok(Err(connection::OpenError::SaslError { .. })) => {
                return Err(Trouble::Refused(format!("the broker does not let user '{}' in with this password", self.user)));
            }
            Ok(opened) => opened.map_err(Trouble::lost)?,
        };
        let session = Session::begin(&mut connection).await.map_err(Trouble::lost)?;
        Ok((connection, session))
    }
}

impl Trouble {
    pub fn lost(error: impl fmt::Display) -> Trouble {
        Trouble::Lost(error.to_string())
    }

    pub fn refused(error: impl fmt::Display) -> Trouble {
        Trouble::Refused(error.to_string())
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Refused(why) => write!(out, "refused: {why}"),
            Trouble::Lost(why) => write!(out, "lost the broker: {why}"),
        }
    }
}
