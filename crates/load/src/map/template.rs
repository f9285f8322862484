//! Templates of keys: `person:{id}`.

use super::ColumnName;

/// A piece of a template.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Piece<C> {
    /// Text that stands in each key.
    Text(String),
    /// The text of a column.
    Column(C),
}

/// A template of keys, whose columns are named, or counted once it is known which ones there are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Template<C = ColumnName> {
    pub pieces: Vec<Piece<C>>,
}

impl Template {
    /// Reads a template. `{{` and `}}` stand for braces.
    pub fn parse(text: &str) -> Result<Template, String> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain += &rest[..at];
            let (brace, behind) = rest[at..].split_at(1);
            if behind.starts_with(brace) {
                plain += brace;
                rest = &behind[1..];
                continue;
            }
            let name = behind.split_once('}').filter(|_| brace == "{").map(|(name, behind)| {
                rest = behind;
                name
            });
            match name {
                None => {
                    return Err(format!(
                        "a brace without its other in \"{text}\"; a plain one is written twice"
                    ));
                }
                Some("") => return Err(format!("{{}} in \"{text}\" names no column")),
                Some(name) => {
                    if !plain.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    }
                    pieces.push(Piece::Column(name.to_string()));
                }
            }
        }
        plain += rest;
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        let template = Template { pieces };
        if template.columns().next().is_none() {
            return Err(format!(
                "\"{text}\" has no column, so that all keys would be the same; write one as {{NAME}}"
            ));
        }
        Ok(template)
    }
}

impl<C> Template<C> {
    /// Its columns, in order.
    pub fn columns(&self) -> impl Iterator<Item = &C> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Column(column) => Some(column),
            Piece::Text(_) => None,
        })
    }

    /// The column, of a template that is nothing else.
    pub fn only_column(&self) -> Option<&C> {
        match &self.pieces[..] {
            [Piece::Column(column)] => Some(column),
            _ => None,
        }
    }

    /// The same template with other columns.
    pub fn map<D>(&self, column: impl Fn(&C) -> D) -> Template<D> {
        let pieces = self.pieces.iter().map(|piece| match piece {
            Piece::Text(text) => Piece::Text(text.clone()),
            Piece::Column(name) => Piece::Column(column(name)),
        });
        Template { pieces: pieces.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates() {
        let text = |text: &str| Piece::Text(text.into());
        let column = |name: &str| Piece::Column(name.into());
        let parsed = |text: &str| Template::parse(text).map(|template| template.pieces);
        assert_eq!(parsed("person:{id}"), Ok(vec![text("person:"), column("id")]));
        assert_eq!(parsed("{a}/{b c}."), Ok(vec![column("a"), text("/"), column("b c"), text(".")]));
        assert_eq!(parsed("{{{a}}}"), Ok(vec![text("{"), column("a"), text("}")]));
        for wrong in ["", "person", "{", "{id", "id}", "{}", "a{{b"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Template::parse("{id}").unwrap().only_column(), Some(&"id".to_string()));
        assert_eq!(Template::parse("p{id}").unwrap().only_column(), None);
    }
}
